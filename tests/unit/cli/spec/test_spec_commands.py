"""`dlq spec init`, `check` and `convert`: offline, with lines, and nothing dropped silently."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq_cli.spec.check import check
from dlq_cli.spec.fields import READERS
from dlq_cli.spec.slurm.convert import convert
from dlq_cli.spec.slurm.converted import as_script, flag_text
from dlq_cli.spec.template import FORMS, template
from dlq_common.job_fields.table import FIELDS
from support.cli_run import Dlq

SLURM = """#!/bin/bash
#SBATCH --job-name=llama-ft
#SBATCH -p gpu
#SBATCH -N 2 --ntasks-per-node=8   # ranks
#SBATCH --gres=gpu:h100:8,fpga:1
#SBATCH --cpus-per-task=12
#SBATCH --mem-per-gpu=60G
#SBATCH -t 1-00:00:00
#SBATCH -o slurm-%j.out
#SBATCH --mail-type=END,FAIL
#SBATCH --signal=B:USR1@120
#SBATCH --exclusive
#SBATCH --bananas=3
#SBATCH --comment="third try"

module load cuda
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
#SBATCH --mem=1G
srun python train.py --id $SLURM_JOB_ID
"""


@pytest.fixture
def dlq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.chdir(tmp_path)
    return Dlq(tmp_path / "nobody")


# -- init ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_template_is_valid_as_it_stands(form: str) -> None:
    name = "train.sh" if form == "script" else f"job.{form}"
    checked = check(template(form).encode(), name, directory="/data", shell={})
    assert checked.problems == []
    assert checked.spec is not None
    assert (checked.spec.values.get("name"), checked.spec.gpu_count) == ("mnist", 8)
    assert checked.spec.values.get("time_limit") == 12 * 3600


# What a key cannot do without; its words in the template name it.
_WITH = {
    "mounts": "image", "network": "image", "image_secret": "image", "secrets": "image",
    "resources.shm_size": "image", "tasks_per_node": "compat", "checkpoint.marker": "checkpoint.dir",  # noqa: E501
    "checkpoint.preset": "checkpoint.dir", "roles.ps": "roles.workers", "on_miss": "deadline",
    "elastic.resize": "elastic.gpus", "resources.halve_batch": "resources.gpu_memory", "due": "weight", "weight": "due",  # noqa: E501
    "resources.memory_per_core": "resources.cores", "tasks": "compat", "cpus_per_task": "compat",
    "tasks_implied": "compat",
    "gpus_per_task": "compat",
}  # fmt: skip
_INSTEAD = {
    "run": "command",
    "resources.gpus": "resources.gpus_total",
    "resources.cores": "resources.gpus_total",
}


def uncommented(form: str, keys: set[str]) -> str:
    """The template with some of its keys and their sections taken out of their comments, and with
    those that they stand for commented out.
    """
    lines, section = [], ""
    away = {_INSTEAD[key] for key in keys if key in _INSTEAD}
    for line in template(form).splitlines():
        bare = line.removeprefix("# ")
        if found := re.fullmatch(r"\[(\w+)\]|(\w+):", bare):
            section = found[1] or found[2]
            lines.append(bare if any(key.startswith(f"{section}.") for key in keys) else line)
            continue
        name = re.match(r" *(\w+)( =|:) ", bare)
        key = "" if name is None else f"{section}.{name[1]}" if section else name[1]
        lines.append(f"# {line}" if key in away else bare if key in keys else line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("form", ["toml", "yaml"])
@pytest.mark.parametrize("key", READERS)
def test_the_template_shows_every_key_with_a_value_that_it_takes(key: str, form: str) -> None:
    with_ = {_WITH[key]} if key in _WITH else set()
    text = uncommented(form, {key} | with_)
    checked = check(text.encode(), f"job.{form}", directory="/data", shell={"HOME": "/home/a"})
    assert [problem.text for problem in checked.problems] == []
    assert FIELDS[key].live or text != template(form), "it is there, behind a #"
    for other in with_:
        assert other.rpartition(".")[2] in FIELDS[key].comment


def test_init_writes_by_the_files_name_and_never_over_one(dlq: Dlq, tmp_path: Path) -> None:
    for name, begins in (("job.toml", "# A job"), ("job.yaml", "# A job"), ("t.sh", "#!/bin/bash")):
        said = dlq("spec", "init", name)
        assert (said.code, said.out) == (0, f"{name}: written; then: dlq submit {name}\n")
        assert (tmp_path / name).read_text().startswith(begins)
    again = dlq("spec", "init", "job.toml")
    assert (again.code, again.err) == (
        2, "dlq: job.toml: it is there already\n  --force writes over it\n",
    )  # fmt: skip
    assert dlq("spec", "init", "--force", "job.toml").code == 0
    assert "no such file or directory" in dlq("spec", "init", "none/job.toml").err


# -- check ---------------------------------------------------------------------------------------

WRONG_TOML = """name = "../b"
command = "python train.py"
gpuz = 4
time_limit = "soon"

[resources]
gpus = "many"
"""


def test_check_tells_every_mistake_with_its_line(dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(WRONG_TOML)
    said = dlq("spec", "check", "job.toml")
    assert said.code == 1
    places = [line.partition(": ")[0] for line in said.out.splitlines() if line.startswith("job")]
    assert places == ["job.toml:1", "job.toml:3", "job.toml:4", "job.toml:7"]
    assert "job.toml:3: unknown key 'gpuz'" in said.out


def test_check_tells_every_wrong_line_of_a_script(dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text(
        "#!/bin/sh\n#DLQ --gpus=x\n#DLQ -t 1h\n#DLQ --nodez=2\n#DLQ --hold=1\ntrue\n#DLQ -G 2\n"
    )
    said = dlq("spec", "check", "t.sh")
    assert said.code == 1
    places = [line.partition(": ")[0] for line in said.out.splitlines()]
    assert places == ["t.sh:2", "t.sh:4", "t.sh:5"]
    assert said.err == "dlq: t.sh:7: a #DLQ line after the first command is not read\n"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.toml", "name = \n", "a.toml:1: not TOML"),
        ("a.yaml", "a: [\n", "a.yaml:2: not YAML"),
        ("a.sh", "echo\n", "a.sh:1: the first line must name the interpreter"),
        ("a.toml", "nodes = 3\ncommand = 'x'\n[resources]\ngpus_total = 8\n", "a.toml:4: 8 GPUs"),
        ("a.toml", "nodes = 3\n", "there is nothing to run"),
        ("a.toml", "\n", "a.toml: it is empty"),
        ("a.yaml", "", "a.yaml: it is empty"),
        ("a.yaml", "command: x\nenv:\n  C: null\n", "a.yaml:3: C has no value"),
        ("a.yaml", "command: x\nname:\nqueue: a\n", "a.yaml:2: name has no value"),
        ("a.yaml", "command: x\nqueue: ~\n", "a.yaml:2: queue has no value"),
        ("a.yaml", "command: !!python/name:os.system x\n", "a.yaml:1: tags are not read"),
        ("a.yaml", "command: x\nenv: {A: !secret b}\n", "a.yaml:2: tags are not read"),
    ],
)
def test_check_names_the_line_of_what_is_wrong_as_a_whole(
    name: str, content: str, told: str, dlq: Dlq, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    said = dlq("spec", "check", name)
    assert (said.code, said.err) == (1, "")
    assert told in said.out


def test_check_needs_no_identity_and_says_what_it_understood(
    dlq: Dlq, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "job.toml").write_text(template("toml") + "\n[preempt]\nsignal = 'USR1@90'\n")
    said = dlq("spec", "check", "--explain", "job.toml")
    assert (said.code, said.err) == (0, "")
    assert said.out.replace(str(tmp_path), "/here") == snapshot
    in_json = json.loads(dlq("spec", "check", "--json", "job.toml").out)
    assert in_json["files"][0]["valid"] is True
    spec = in_json["files"][0].pop("spec")
    assert (spec["name"], spec["resources"]["gpu_count"]) == ("mnist", 8)
    assert json.dumps(in_json, indent=1).replace(str(tmp_path), "/here") == snapshot


def test_check_of_several_files_exits_with_1_if_one_is_wrong(dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text("command = 'true'\n")
    (tmp_path / "bad.toml").write_text(WRONG_TOML)
    said = dlq("spec", "check", "--json", "good.toml", "bad.toml")
    assert said.code == 1
    files = json.loads(said.out)["files"]
    assert [file["valid"] for file in files] == [True, False]
    assert [problem["line"] for problem in files[1]["problems"]] == [1, 3, 4, 7]
    assert files[1]["spec"] is None


def test_check_of_a_file_that_is_not_there_is_a_usage_error(dlq: Dlq) -> None:
    said = dlq("spec", "check", "none.toml")
    assert (said.code, said.err) == (2, "dlq: none.toml: no such file or directory\n")


def test_a_file_that_is_not_there_keeps_no_other_from_its_verdict(dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text("command = 'true'\n")
    said = dlq("spec", "check", "none.toml", "good.toml")
    assert (said.code, said.out) == (
        1, "none.toml: no such file or directory\ngood.toml: ok\n",
    )  # fmt: skip
    files = json.loads(dlq("spec", "check", "--json", "none.toml", "good.toml").out)["files"]
    assert [file["valid"] for file in files] == [False, True]


def test_words_and_quoted_nothing_are_values_in_yaml(tmp_path: Path) -> None:
    text = "command: x\nenv: {A: 'null', B: '', C: no, D: !!str 1}\n"
    checked = check(text.encode(), "a.yaml", directory="/", shell={})
    assert checked.problems == []
    assert checked.spec is not None
    assert checked.spec.environment == {"A": "null", "B": "", "C": "no", "D": "1"}


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("", "a.sh:2: without a time limit nothing is warned of: the 90 s are the grace"),
        ("#DLQ -t 15s\n", "a.sh:2: a limit of 15 s ends before anybody is warned"),
        ("#DLQ -t 100s\n", "leaves no 90 s to warn ahead: the signal comes 20 s after the start"),
        ("#DLQ -t 1h\n", ""),
    ],
)
def test_a_warning_that_cannot_come_in_time_is_told(limit: str, told: str) -> None:
    text = f"#!/bin/sh\n#DLQ --signal USR1@90\n{limit}true\n"
    notes = check(text.encode(), "a.sh", directory="/", shell={}).notes
    assert told in "".join(notes)
    assert bool(notes) == bool(told)


def test_check_reads_stdin(dlq: Dlq) -> None:
    said = dlq("spec", "check", "-", stdin=b"#!/bin/sh\n#DLQ --nodes=0\ntrue\n")
    assert (said.code, said.out) == (
        1, "stdin:2: --nodes: a job needs at least one node\n",
    )  # fmt: skip


# -- convert -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--keep",), ("--to", "toml"), ("--json",)])
def test_a_script_for_slurm_as(
    flags: tuple[str, ...], dlq: Dlq, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "train.slurm").write_text(SLURM)
    said = dlq("spec", "convert", *flags, "train.slurm")
    assert said.code == 0
    assert f"{said.out}--- stderr\n{said.err}" == snapshot


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("name", ["train.slurm", "./train.slurm", "link", "hard"])
def test_convert_does_not_write_over_its_script(
    name: str, force: tuple[str, ...], dlq: Dlq, tmp_path: Path
) -> None:
    script = tmp_path / "train.slurm"
    script.write_text(SLURM)
    (tmp_path / "link").symlink_to(script)
    (tmp_path / "hard").hardlink_to(script)
    said = dlq("spec", "convert", *force, "train.slurm", "-o", name)
    assert said.code == 2
    assert "it is the input, and would be overwritten\n  give another path" in said.err
    assert script.read_text() == SLURM


@pytest.mark.parametrize("name", ["train.sh", "train.toml"])
def test_what_convert_makes_is_accepted_and_means_the_same(
    name: str, dlq: Dlq, tmp_path: Path
) -> None:
    (tmp_path / "train.slurm").write_text(SLURM)
    assert dlq("spec", "convert", "train.slurm", "-o", name).code == 0
    checked = check((tmp_path / name).read_bytes(), name, directory="/data", shell={})
    assert checked.problems == []
    spec = checked.spec
    assert spec is not None
    assert (spec.values.get("name"), spec.values.get("queue")) == ("llama-ft", "gpu")
    assert (spec.gpu_count, spec.node_count, spec.gpu_types) == (16, 2, ("h100",))
    assert (spec.values.get("resources.cpus"), spec.values.get("resources.memory")) == (
        96,
        480 << 30,
    )
    assert (spec.values.get("time_limit"), spec.signal, spec.values.get("preempt.grace")) == (
        86400,
        "USR1",
        120,
    )
    assert spec.labels == {"comment": "third try"}
    assert spec.script is not None
    assert "srun python train.py" in spec.script


def becomes(*lines: str) -> tuple[list[str], dict[str, str]]:
    """The #DLQ flags of some #SBATCH options, and the reasons of those that are left out."""
    text = "#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "true\n"
    made = convert(text, "x")
    return (
        [flag_text(taken) for taken in made.taken],
        {ignored.written: ignored.why for ignored in made.ignored},
    )


@pytest.mark.parametrize(
    ("lines", "flags"),
    [
        (["--mem=4000"], ["--mem=4000M"]),
        (["--mem-per-cpu=2G", "-c 8"], ["--mem=16G", "--cpus=8"]),
        (["--gpus-per-task=2", "-n 4"], ["--gpus=8"]),
        (["--gpus-per-task=a100:1", "-N 2", "-n 8"], ["--gpus-per-node=a100:4", "--nodes=2"]),
        (["-G h100:16", "-N2", "--mem-per-gpu=10G"], ["--gpus=h100:16", "--nodes=2", "--mem=80G"]),
        (["--gres=gpu"], ["--gpus-per-node=1"]),
        (["-t UNLIMITED"], ["--time=0"]),
        (["--signal=SIGUSR2"], ["--signal=USR2@60"]),
        (["--signal=B:10@300"], ["--signal=USR1@300"]),
        (["-H"], ["--hold"]),
        (["--export=NIL"], ["--export=NONE"]),
        (["-N 2-4"], ["--nodes=2"]),
        (["-N 2 # don't ask -n 3"], ["--nodes=2"]),
        (
            ["--container-image=nvcr.io#nvidia/pytorch:25.01", "--container-mounts=/a,/b:/c:ro"],
            ["--image=nvcr.io/nvidia/pytorch:25.01", "--mount=/a:/a", "--mount=/b:/c:ro"],
        ),
        (["-t 10", "-t 20"], ["--time=20"]),
        (["--part=gpu"], ["--queue=gpu"]),
        (["--kill-on-invalid-dep yes", "-N 2"], ["--kill-on-invalid-dep=yes", "--nodes=2"]),
        (["-J one", "--gpus-per-node=4", "--gres=gpu:8"], ["--job-name=one", "--gpus-per-node=4"]),
    ],
)
def test_options_become(lines: list[str], flags: list[str]) -> None:
    assert becomes(*lines)[0] == flags


@pytest.mark.parametrize(
    ("lines", "written", "why"),
    [
        (["--mem=0"], "--mem=0", "all of a node's memory"),
        (["--signal=HUP@10"], "--signal=HUP@10", "is not a signal to save on"),
        (["-J ../b"], "-J ../b", "job name"),
        (["-c 4", "-n 8"], "-c 4", "how many tasks a node has is not said"),
        (["-t 10", "-t 20"], "-t 10", "line 3 says it again"),
        (["--gpus-per-node=4", "--gres=gpu:8"], "--gres=gpu:8", "line 2 says it already"),
        (["--wait"], "--wait", "dlq submit --wait"),
        (["--brand-new=1"], "--brand-new=1", "dlq has nothing like it"),
        (["--brand-new", "-N 2"], "--brand-new", "dlq has nothing like it"),
        (["-Z 7 -N 2"], "-Z 7", "dlq has nothing like it"),
        (["-N 2", "hetjob", "-N 4"], "-N 4", "a job here has one part"),
        (["-N 2", "hetjob", "-N 4"], "hetjob", "a job here has one part"),
    ],
)
def test_what_becomes_nothing_has_a_reason(lines: list[str], written: str, why: str) -> None:
    assert why in becomes(*lines)[1][written]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "--nodes=2-4",
            "--nodes=2-4: the smaller number; --elastic MIN:MAX, in GPUs, lets it stretch",
        ),
        ("--signal=R:USR1@90", "R: has no counterpart; there are no reservations"),
        ("--dependency=afterok:91", "--dependency=afterok:91: these are Slurm's numbers"),
        ("-w gpu01", "-w gpu01: here it means only on these, not on all of these"),
    ],
)
def test_what_means_something_else_here_is_told_with_its_line(line: str, told: str) -> None:
    made = convert(f"#!/bin/sh\n#SBATCH {line}\ntrue\n", "x")
    assert [remark.line for remark in made.remarks if remark.text.startswith(told)] == [2]


def test_a_requeue_in_the_commands_is_told_apart_from_lists_of_hosts() -> None:
    body = "scontrol requeue $SLURM_JOB_ID\nscontrol show hostnames\n"
    told = [r.text for r in convert(f"#!/bin/sh\n#SBATCH -G 1\n{body}", "x").remarks if r.line]
    assert "scontrol requeue: end with exit code 99" in told[0]
    assert "scontrol: the list of hosts" in told[2]


@pytest.mark.parametrize("blank", ["  # indented", "\t#x", "", "   "])
def test_comments_and_blank_lines_do_not_end_the_options(blank: str) -> None:
    made = convert(f"#!/bin/sh\n{blank}\n#SBATCH -N 2\n  true\n#SBATCH -t 5\n", "x")
    assert [taken.written for taken in made.taken] == ["-N 2"]
    assert as_script(made, keep=False).split("\n")[2] == "#DLQ --nodes=2"


def test_every_option_is_either_taken_over_or_listed() -> None:
    lines = [line for line in SLURM.splitlines()[1:14] if line.startswith("#SBATCH")]
    flags, ignored = becomes(*(line.removeprefix("#SBATCH ") for line in lines))
    # One line has two options, another two resources of which one is a GPU.
    assert len(flags) + len(ignored) == len(lines) + 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("#!/bin/sh\ntrue\n", "t.slurm: it has no #SBATCH lines before its first command"),
        ("#!/bin/sh\n#SBATCH nodes=2\n", "t.slurm:2: 'nodes=2' is not an option of sbatch"),
        ("#!/bin/sh\n#SBATCH --nodes\n", "t.slurm:2: --nodes needs a value"),
        ("#!/bin/sh\n#SBATCH -J 'a\n", "t.slurm:2: quotes do not match"),
        ("\x7fELF\0", "t.slurm: not text"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_with_its_line(
    content: str, told: str, dlq: Dlq, tmp_path: Path
) -> None:
    (tmp_path / "t.slurm").write_text(content)
    said = dlq("spec", "convert", "t.slurm")
    assert said.code == 2
    assert told in said.err


@pytest.mark.parametrize(
    "body", ["echo '''a'''\n", "printf '\\033'\n# \x1b\x7f\n", 'echo "\\\\"\n']
)
def test_any_body_survives_the_way_into_toml(body: str, dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "t.slurm").write_text(f"#!/bin/sh\n#SBATCH -G 1\n{body}")
    assert dlq("spec", "convert", "t.slurm", "-o", "t.toml").code == 0
    assert tomllib.loads((tmp_path / "t.toml").read_text())["run"] == f"#!/bin/sh\n{body}"
