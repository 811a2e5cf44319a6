"""`sbatch` against a master of canned answers: its lines, codes and errors as Slurm 22.05's."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from dlq.v1 import job_pb2, node_pb2, resource_pb2, team_pb2
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster

pytestmark = pytest.mark.integration

RECORD = json.loads((Path(__file__).parents[1] / "data" / "slurm_submissions.json").read_text())
# Lines of the record that both refuse, without a word to the master.
SAME = (
    "-n 0", "-n x", "-c 0", "-N 0", "-N 2-1", "--time=x", "--bogus", "--array=x", "--array=5-1",
    "--signal=bogus", "--dependency=bogus:1",
)  # fmt: skip
TOO_LARGE = ("SubmitJob", grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE")


def sent(master: FakeMaster) -> list[job_pb2.JobSpec]:
    return [request.spec for request in master.requests("SubmitJob")]


@pytest.mark.parametrize("line", SAME)
def test_an_error_of(line: str, master: FakeMaster, dlq: Dlq) -> None:
    told = RECORD["lines"][line]
    said = dlq("slurm", "sbatch", *line.split(), "--wrap=true")
    assert (said.code, said.out) == (told["code"], "")
    assert said.err.splitlines()[0] == told["err"].splitlines()[0]
    assert not sent(master)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "Submitted batch job 17\n"),
        (("--array=0-9999",), "Submitted batch job 17\n"),
        (("--parsable",), "17\n"),
        (("--parsable", "--array=0-3"), "17\n"),
        (("-Q",), ""),
        (("--parsable", "-Q"), ""),
        (("-M", "all"), "Submitted batch job 17 on cluster lab\n"),
    ],
)
def test_stdout_is_slurms_to_the_letter(words: tuple[str, ...], line: str, dlq: Dlq) -> None:
    said = dlq("slurm", "sbatch", *words, "--wrap=true")
    assert (said.code, said.out) == (0, line), said.err


@pytest.mark.parametrize(
    ("words", "brief"),
    [
        (("slurm", "sbatch"), True),
        (("slurm", "sbatch", "--quiet"), True),
        (("slurm", "sbatch", "--test-only"), False),
        (("submit", "--parsable"), False),
        (("submit", "--json"), False),
    ],
)
def test_only_what_is_told_is_asked_for(
    words: tuple[str, ...], brief: bool, master: FakeMaster, dlq: Dlq
) -> None:
    dlq(*words, "--wrap=true")
    (request,) = master.requests("SubmitJob")
    assert request.brief is brief


@pytest.mark.parametrize(
    ("content", "first"),
    [
        (b"echo hi\n", "sbatch: error: This does not look like a batch script.  The first"),
        (b"#!/bin/sh\r\n", "sbatch: error: Batch script contains DOS line breaks (\\r\\n)"),
        (b"", "sbatch: error: Batch script is empty!"),
        (b" \n\n", "sbatch: error: Batch script contains only whitespace!"),
        (b"#!/bin/sh\n\0", "sbatch: error: The Slurm controller does not allow scripts that"),
        (
            b"#!/bin/sh\n" + b"x" * 4_194_304,
            "sbatch: error: Batch job submission failed: Pathname of a file, directory or other "
            "parameter too long",
        ),
        (None, "sbatch: error: Unable to open file job.sh"),
    ],
)
def test_a_file_that_is_no_script(
    content: bytes | None, first: str, dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "job.sh").write_bytes(content)
    said = dlq("slurm", "sbatch", "job.sh")
    assert (said.code, said.out, said.err.splitlines()[0]) == (1, "", first)


def test_options_in_the_script_count_and_the_command_line_wins(
    master: FakeMaster, dlq: Dlq, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --parsable -n 3 -c 2\n#SBATCH -J mine\ntrue\n")
    said = dlq("slurm", "sbatch", "-c", "4", str(script))
    assert (said.code, said.out) == (0, "17\n")
    (spec,) = sent(master)
    assert (spec.name, spec.tasks.task_count, spec.tasks.cpus_per_task) == ("mine", 3, 4)
    assert (spec.resources.core_count, spec.resources.gpu_count) == (12, 0)
    assert spec.environment["SLURM_SUBMIT_DIR"]


def test_a_job_that_no_one_node_holds_is_spread_over_some(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse_once(*TOO_LARGE, what="no node is so large")
    assert dlq("slurm", "sbatch", "-n", "100", "--wrap=true").code == 0
    first, second = sent(master)
    assert first.resources.node_count == 1
    assert not second.resources.HasField("node_count")
    assert second.tasks.task_count == 100


def test_nodes_that_were_asked_for_are_kept(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse_once(*TOO_LARGE, what="no node is so large", reason_1="64 at most")
    said = dlq("slurm", "sbatch", "-N", "1", "-n", "100", "--wrap=true")
    assert (said.code, len(sent(master))) == (1, 1)
    assert said.err.splitlines() == [
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "  no node is so large",
        "  64 at most",
    ]


def test_an_exclusive_job_gets_all_of_its_nodes(master: FakeMaster, dlq: Dlq) -> None:
    gpus = [resource_pb2.Gpu(index=at, gpu_type="h100-80gb") for at in range(4)]
    master.nodes = {"n1": node_pb2.Node(node_id="n1", gpus=gpus)}
    assert dlq("slurm", "sbatch", "--exclusive", "-N2", "--gres=gpu:1", "--wrap=true").code == 0
    [spec] = sent(master)
    assert (spec.resources.gpu_count, spec.resources.node_count) == (8, 2)


def test_a_script_that_names_no_gpu_is_told_how_to_ask_for_one(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.refuse_once(*TOO_LARGE, what="no node gives cores to CPU jobs")
    said = dlq("slurm", "sbatch", "-N", "1", "--wrap=true")
    assert said.code == 1
    assert "--gpus=1 asks for a GPU" in said.err


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            "INVALID_REQUEST",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        ),
        (
            "QUOTA_EXCEEDED",
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
            "submit limit, user's size and/or time limits)",
        ),
    ],
)
def test_a_refusal_of_the_master_has_slurms_words(
    reason: str, line: str, master: FakeMaster, dlq: Dlq
) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    master.refuse("SubmitJob", code, reason, what="there is no such thing", field="spec.queue")
    said = dlq("slurm", "sbatch", "-p", "nosuch", "--wrap=true")
    assert said.code == 1
    assert line in said.err.splitlines()


def test_an_account_is_a_team_where_there_are_some(master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("slurm", "sbatch", "-A", "alpha", "--wrap=true").code == 0
    master.teams = [team_pb2.Team(name="vision")]
    assert dlq("slurm", "sbatch", "-A", "vision", "--wrap=true").code == 0
    assert [spec.team for spec in sent(master)] == ["", "vision"]
    said = dlq("slurm", "sbatch", "-A", "alpha", "--wrap=true")
    assert (said.code, said.err) == (
        1,
        "sbatch: error: Batch job submission failed: Invalid account or account/partition "
        "combination specified\n",
    )


def test_a_lenient_user_need_not_change_command_lines(master: FakeMaster, tmp_path: Path) -> None:
    home = master.home(tmp_path / "home")
    said = Dlq(home)("slurm", "sbatch", "--reboot", "--wrap=true")
    assert said.code == 1
    assert said.err.startswith("sbatch: error: --reboot: ")
    assert "--lenient" in said.err
    for environ in ({"DLQ_SLURM_LENIENT": "1"}, {}):
        said = Dlq(home, environ)("slurm", "sbatch", "--reboot", "--wrap=true")
        assert (said.code, said.out) == (0 if environ else 1, said.out)
    (home / "config.toml").write_text('slurm_lenient = "1"\n')
    assert Dlq(home)("slurm", "sbatch", "--reboot", "--wrap=true").code == 0


def test_only_prints_slurms_line_on_stderr_and_queues_nothing(master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("slurm", "sbatch", "--test-only", "-n", "3", "--wrap=true")
    assert (said.code, said.out) == (0, "")
    assert " using 3 processors on nodes " in said.err
    assert [request.validate_only for request in master.requests("SubmitJob")] == [True]


def busy(master: FakeMaster, *, once: bool) -> None:
    refuse = master.refuse_once if once else master.refuse
    facts = {"what": "too fast", "retry_after_s": "1"}
    refuse("SubmitJob", grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN", **facts)


BUSY = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"


def test_a_submission_that_is_refused_for_now_comes_again(master: FakeMaster, dlq: Dlq) -> None:
    busy(master, once=True)
    assert dlq("slurm", "sbatch", "--wrap=true") == Said(0, "Submitted batch job 17\n", BUSY)
    first, second = master.requests("SubmitJob")
    assert first.request_id == second.request_id


def test_it_gives_up_when_the_patience_is_over(master: FakeMaster, dlq: Dlq) -> None:
    busy(master, once=False)
    said = dlq("slurm", "sbatch", "--wrap=true", patience_s=0.3)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(BUSY)
    assert "too fast" in said.err
    assert len(master.requests("SubmitJob")) > 1


def test_a_script_may_have_4_mib(master: FakeMaster, dlq: Dlq, tmp_path: Path) -> None:
    script = tmp_path / "large.sh"
    script.write_bytes(b"#!/bin/sh\n" + b"#" * (4 * 1024 * 1024 - 11) + b"\n")
    assert dlq("slurm", "sbatch", str(script)).code == 0
    assert len(sent(master)[0].script) == 4 * 1024 * 1024
    script.write_bytes(script.read_bytes() + b"\n")
    assert "parameter too long" in dlq("slurm", "sbatch", str(script)).err


def test_usage_is_told(dlq: Dlq) -> None:
    for program in ("srun", "salloc", "sbatch"):
        said = dlq("slurm", program, "--usage")
        assert (said.code, said.err) == (0, "")
        assert said.out.startswith(f"Usage: {program} [")
