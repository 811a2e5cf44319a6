"""The five lines, inside and outside dlq."""

import json
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlq_train
from dlq_train import CheckpointUnusable, settings
from dlq_train.notice import STOP_SIGNALS


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of attempt 2 of job 17."""
    for name, value in {
        "DLQ_JOB_ID": "17",
        "DLQ_ATTEMPT": "2",
        "DLQ_FENCE": "3.2",
        "DLQ_CHECKPOINT_DIR": str(tmp_path / "17" / "2"),
        "DLQ_PREEMPT_FILE": str(tmp_path / "preempt"),
        "DLQ_BEAT_FILE": str(tmp_path / "beat"),
        "DLQ_DONE_FILE": str(tmp_path / "done"),
    }.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def load_text(directory: Path) -> str:
    return (directory / "state").read_text()


def write_state(directory: Path) -> None:
    (directory / "state").write_text("weights")


def test_outside_dlq_it_saves_locally_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    run = dlq_train.init()
    assert run.resume(load_text) is None
    run.beat(1, loss=0.5, total=2)
    assert not run.should_stop()
    run.save(1, write_state)
    run.done()
    assert signal.getsignal(signal.SIGTERM) is before
    assert (tmp_path / "checkpoints" / "step-000001").is_dir()
    assert dlq_train.init().resume(load_text) == "weights"


def test_a_notice_leads_to_a_commit_and_exit_99(tmp_path: Path, inside: pytest.MonkeyPatch) -> None:
    run = dlq_train.init()
    run.beat(7)
    assert run.stop_flag() == 0
    (tmp_path / "preempt").touch()
    signal.raise_signal(signal.SIGTERM)
    assert run.stop_flag() == 1
    saved = run.save(7, write_state)
    with pytest.raises(SystemExit) as left:
        run.leave()
    assert left.value.code == dlq_train.PREEMPTED == 99
    marker = json.loads((saved.path / "COMMITTED").read_text())
    assert (marker["job_id"], marker["attempt"], marker["fence"]) == ("17", "2", "3.2")
    beat = json.loads((tmp_path / "beat").read_text())
    assert beat["checkpoint"] == "step-000007"
    assert beat["last_save_s"] > 0
    assert not (tmp_path / "done").exists()


def test_done_says_so_in_its_file(tmp_path: Path, inside: pytest.MonkeyPatch) -> None:
    run = dlq_train.init()
    run.beat(10, total=10)
    run.done()
    assert json.loads((tmp_path / "done").read_text())["step"] == 10


def test_the_next_attempt_goes_on_from_the_promoted_checkpoint(
    tmp_path: Path, inside: pytest.MonkeyPatch
) -> None:
    promoted = dlq_train.init().save(7, write_state)
    inside.setenv("DLQ_ATTEMPT", "3")
    inside.setenv("DLQ_CHECKPOINT_DIR", str(tmp_path / "17" / "3"))
    inside.setenv("DLQ_RESUME_FROM", str(promoted.path))
    assert dlq_train.init().resume(load_text) == "weights"


def test_a_damaged_checkpoint_gives_way_to_an_older_one_with_a_warning(
    tmp_path: Path, inside: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = dlq_train.init()
    run.save(7, write_state)
    newer = run.save(8, lambda directory: (directory / "state").write_text("newer"))
    (newer.path / "state").write_text("nEwer")
    inside.setenv("DLQ_CHECKPOINT_DIR", str(tmp_path / "17" / "3"))
    inside.setenv("DLQ_RESUME_FROM", str(newer.path))
    with caplog.at_level(logging.WARNING):
        assert dlq_train.init().resume(load_text) == "weights"
    assert "step-000008" in caplog.text


def test_a_promise_that_cannot_be_kept_is_an_error_not_a_fresh_start(
    tmp_path: Path, inside: pytest.MonkeyPatch
) -> None:
    inside.setenv("DLQ_RESUME_FROM", str(tmp_path / "17" / "1" / "step-000100"))
    with pytest.raises(CheckpointUnusable, match="step-000100"):
        dlq_train.init().resume(load_text)


def test_what_load_raises_is_the_scripts_own_affair(
    tmp_path: Path, inside: pytest.MonkeyPatch
) -> None:
    run = dlq_train.init()
    run.save(7, write_state)
    with pytest.raises(FileNotFoundError):
        run.resume(lambda directory: (directory / "other").read_text())


def test_saving_the_same_step_twice_keeps_the_time_of_the_real_save(
    tmp_path: Path, inside: pytest.MonkeyPatch
) -> None:
    run = dlq_train.init()
    first = run.save(7, write_state)
    told = (tmp_path / "beat").read_text()
    assert run.save(7, write_state) is first
    assert (tmp_path / "beat").read_text() == told


def test_only_rank_0_commits(inside: pytest.MonkeyPatch) -> None:
    inside.setenv("DLQ_NODE_RANK", "1")
    with pytest.raises(ValueError, match="rank 1"):
        dlq_train.init().save(7, write_state)


def test_a_launchers_ranks_go_before_the_nodes(tmp_path: Path, inside: pytest.MonkeyPatch) -> None:
    inside.setenv("DLQ_NODE_RANK", "0")
    inside.setenv("RANK", "1")
    inside.setenv("LOCAL_RANK", "1")
    run = dlq_train.init()
    assert run.rank == 1
    run.beat(1)
    assert not (tmp_path / "beat").exists()


def test_under_dlq_the_checkpoint_directory_must_be_named() -> None:
    with pytest.raises(ValueError, match="DLQ_CHECKPOINT_DIR"):
        settings.read({"DLQ_JOB_ID": "17"}, local_dir=Path())


def test_an_empty_variable_is_an_absent_one() -> None:
    read = settings.read({"DLQ_RESUME_FROM": "", "DLQ_NODE_RANK": ""}, local_dir=Path("here"))
    assert (read.resume_from, read.rank, read.checkpoint_dir) == (None, 0, Path("here"))


def test_the_module_imports_nothing_beyond_the_standard_library() -> None:
    package = Path(dlq_train.__file__).parent
    imported = {
        line.split()[1].split(".")[0]
        for path in package.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported - sys.stdlib_module_names == {"dlq_train"}
