"""What a preset brings, who wins over it, and what a script for Slurm says with compat."""

from pathlib import Path

import pytest

from dlq_cli.slurm.sbatch import spec_of
from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.merge import merge, stacked
from dlq_cli.spec.script import read_script
from dlq_cli.spec.slurm.sbatch import read_words
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes
from dlq_cli.spec.values.presets import PRESETS
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.reading.words import PRESETS as WORDS

SLURM = """\
#!/bin/bash
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=4
#SBATCH --gres=gpu:4 --signal=B:USR1@120 --output=%j.out
srun python train.py
"""


def spec(**flags: str) -> Spec:
    """A command with some flags."""
    said = [(BY_NAME[f"--{name.replace('_', '-')}"], text, name) for name, text in flags.items()]
    command: Layer = {"command": Given(("train",), "the command line")}
    return finish(stacked([command, layer_from(said)]), directory="/home/ada")


def of_script(text: str, **flags: str) -> tuple[Spec, Notes]:
    """A script that is submitted with some flags."""
    said = [(BY_NAME[f"--{name.replace('_', '-')}"], value, name) for name, value in flags.items()]
    over = layer_from(said)
    script = read_script(text.encode(), "train.slurm", over=over)
    return finish(merge([script.layer, over], {}), directory="/home/ada"), script.notes


def sbatch(*words: str) -> tuple[Spec, Notes]:
    """What sbatch would queue."""
    notes = Notes()
    return spec_of(*read_words(words, "sbatch"), notes), notes


def test_every_preset_has_a_name_that_can_be_written() -> None:
    assert set(PRESETS) == set(WORDS)


def test_a_preset_says_signal_marker_and_compat() -> None:
    made = spec(checkpoint_preset="lightning", checkpoint_dir="/ckpt")
    assert (made.signal, made.values.get("compat")) == ("USR1", "slurm")
    assert (made.values.get("checkpoint.marker"), made.values.get("checkpoint.settle")) == (
        "**/hpc_ckpt_*.ckpt",
        1.0,
    )
    assert made.origins["checkpoint.preset"] == "checkpoint_preset"


def test_what_somebody_writes_wins_over_the_preset() -> None:
    made = spec(
        checkpoint_preset="hf", checkpoint_dir="/c", signal="USR2@90", checkpoint_marker="x-*"
    )
    assert (
        made.signal,
        made.values.get("preempt.grace"),
        made.values.get("checkpoint.marker"),
    ) == ("USR2", 90, "x-*")


def test_plain_presets_leave_the_marker_to_the_user_and_look_like_no_scheduler() -> None:
    for name in ("sigterm", "torchrun"):
        made = spec(checkpoint_preset=name, checkpoint_dir="/ckpt")
        assert (made.signal, made.values.get("checkpoint.marker"), made.values.get("compat")) == (
            "TERM",
            None,
            None,
        )


def test_signals_are_for_the_ranks_of_torchrun_unless_somebody_says_otherwise() -> None:
    to = {
        name: spec(checkpoint_preset=name, checkpoint_dir="/c").values.get("preempt.signal_to")
        for name in PRESETS
    }
    assert [name for name, who in to.items() if who == "ranks"] == ["torchrun", "hf"]
    assert set(to.values()) == {"ranks", None}
    written: Layer = {
        "command": Given(("train",), "job.toml"),
        "checkpoint.preset": Given("torchrun", "job.toml"),
        "preempt.signal_to": Given("main", "job.toml"),
    }
    assert finish(written, directory="/home/ada").values.get("preempt.signal_to") == "main"


def test_a_task_of_an_array_looks_for_its_own_pickle() -> None:
    assert spec(checkpoint_preset="submitit", checkpoint_dir="/l").values.get(
        "checkpoint.marker"
    ) == ("**/%j_submitted.pkl")
    made = spec(checkpoint_preset="submitit", checkpoint_dir="/l", array="0-3")
    assert made.values.get("checkpoint.marker") == "**/%A_%a_submitted.pkl"


def test_without_a_directory_there_is_no_marker_or_a_clear_refusal() -> None:
    assert spec(checkpoint_preset="lightning").values.get("checkpoint.marker") is None
    with pytest.raises(InvalidRequest, match=r"checkpoint\.dir \(the trainer's output_dir\)"):
        spec(checkpoint_preset="hf")


def test_an_unknown_preset_and_tasks_without_srun_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"'lightening' is not one of .* did you mean"):
        spec(checkpoint_preset="lightening")
    with pytest.raises(InvalidRequest, match="tasks are srun's: they need compat"):
        spec(ntasks_per_node="4")


def test_with_compat_a_scripts_sbatch_lines_count() -> None:
    made, notes = of_script(SLURM, compat="slurm", nodes="1")
    assert (made.values.get("name"), made.node_count, made.gpu_count) == ("train", 1, 4)
    assert (made.values.get("tasks_per_node"), made.signal, made.values.get("preempt.grace")) == (
        4,
        "USR1",
        120,
    )
    assert made.values.get("output.stdout") == "%j.out"
    assert notes == []


def test_a_preset_that_implies_compat_reads_them_too() -> None:
    assert of_script(SLURM, checkpoint_preset="lightning")[0].values.get("tasks_per_node") == 4


def test_dlq_lines_win_over_sbatch_lines() -> None:
    both = SLURM.replace("srun", "#DLQ --compat=slurm --job-name=ours\nsrun")
    made, _ = of_script(both)
    assert (made.values.get("name"), made.values.get("tasks_per_node")) == ("ours", 4)


def test_without_compat_they_are_named_and_do_nothing() -> None:
    made, notes = of_script(SLURM)
    assert (made.values.get("name"), made.gpu_count) == ("train.slurm", 1)
    assert notes == ["train.slurm: 2 #SBATCH lines are not read; write them as #DLQ"]


def test_sbatch_has_slurms_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/data")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("#!/bin/sh\nsrun train\n")
    made, _ = sbatch("train.sh", "--lr", "0.1")
    assert (
        made.values.get("name"),
        made.values.get("compat"),
        made.values.get("tasks_per_node"),
    ) == ("train.sh", "slurm", 1)
    assert (made.environment["DATA"], made.command) == ("/data", ("--lr", "0.1"))
    assert made.values.get("workdir") == str(tmp_path)


def test_sbatchs_own_options_win_over_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.slurm").write_text(SLURM)
    made, _ = sbatch("-J", "other", "--gres=gpu:8", "-n8", "train.slurm")
    assert (made.values.get("name"), made.gpu_count, made.values.get("tasks_per_node")) == (
        "other",
        16,
        4,
    )


def test_a_script_of_submitit_gets_its_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "submission.sh").write_text(
        "#!/bin/bash\n#SBATCH --output=/logs/%j_0_log.out\n#SBATCH --signal=USR2@90\n"
        "export SUBMITIT_EXECUTOR=slurm\nsrun --output /logs/%j_%t_log.out python -m submitit\n"
    )
    made, notes = sbatch("submission.sh")
    assert (made.signal, made.values.get("checkpoint.dir")) == ("USR2", "/logs")
    assert made.values.get("checkpoint.marker") == "**/%j_submitted.pkl"
    assert notes == []


def test_an_unknown_option_of_sbatch_is_named() -> None:
    with pytest.raises(InvalidRequest, match="sbatch: invalid option -- 'Z'"):
        sbatch("-Z", "x")


def test_every_preset_is_on_its_page_word_by_word() -> None:
    page = (Path(__file__).parents[4] / "docs" / "using" / "frameworks.md").read_text()
    for name, it in PRESETS.items():
        cells = (f"`{name}`", it.signal, it.reaches, it.saves, it.proof, it.resumes)
        assert f"| {' | '.join(cells)} |\n" in page
