"""An unmodified PyTorch script under plain torchrun, taken off its GPUs twice, ends as if it had not."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from support.users_view import UsersView
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "torch" / "train_ddp.py"
TORCHRUN = ROOT / ".venv-torch" / "bin" / "torchrun"
# Slow enough that a command of `dlq` reaches it in the middle, on a busy machine too.
TRAINING = ("--steps", "600", "--hidden", "1024", "--batch", "128", "--save-every", "50")
ALL_GPUS = ("-N", "2", "--gpus-per-node", "8")


def command(checkpoints: Path) -> list[str]:
    return [
        str(TORCHRUN), "--nproc-per-node", "2", str(SCRIPT),
        "--checkpoint-dir", str(checkpoints), *TRAINING,
    ]  # fmt: skip


@pytest.fixture
def undisturbed(tmp_path: Path) -> Iterator[Path]:
    """The checkpoints of the same training outside of dlq; it ends with the block."""
    assert TORCHRUN.exists(), "make e2e makes the environment for PyTorch"
    checkpoints = tmp_path / "undisturbed"
    checkpoints.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    with (
        (tmp_path / "undisturbed.txt").open("wb") as output,
        subprocess.Popen(
            command(checkpoints), cwd=tmp_path, env=plain, stdout=output, stderr=output
        ) as run,
    ):
        try:
            yield checkpoints
        finally:
            run.terminate()


def test_preempted_by_a_job_and_paused_by_its_user_it_ends_with_the_same_weights(
    user: UsersView, tmp_path: Path, undisturbed: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    job = user.submit(
        "-J", "train-ddp", "--gpus", "8", "--checkpoint-dir", str(checkpoints),
        "--checkpoint-marker", "ckpt-*.pt", "-D", str(tmp_path), "--", *command(checkpoints),
    )  # fmt: skip

    user.wait(job, lambda now: now.HasField("checkpoint") and now.level > 0, "it saves, and sinks")
    rival = user.submit(*ALL_GPUS, "--", sys.executable, "-c", "print('all mine')")
    assert user.wait_for_end(rival).state == job_pb2.JOB_STATE_COMPLETED

    user.wait(job, lambda now: now.checkpoint.attempt == 2, "it goes on, and saves again")
    user.dlq("pause", job)
    user.wait(job, is_paused, "it is paused")
    assert "learned from 2 saves" in user.dlq("show", job)
    user.dlq("resume", job)
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)

    weights = (checkpoints / "final.sha256").read_text()
    wait_until((undisturbed / "final.sha256").exists, what="the undisturbed run", timeout_s=300.0)
    assert weights == (undisturbed / "final.sha256").read_text()

    shown = user.show(job)
    assert shown["lost_gpu_seconds"] == 0
    assert [told(attempt) for attempt in shown["attempts"]] == [
        ("preempted", "preempt", 1),  # so torchrun ends when it is asked to
        ("preempted", "pause", 1),
        ("succeeded", None, 0),
    ]
    events = user.events(job)
    assert [each["kind"] for each in events if each["kind"] in TOLD] == [
        *STARTED, "attempt_stop_requested", *TAKEN_OFF,
        *STARTED, "job_held", "attempt_stop_requested", *TAKEN_OFF, "job_released",
        *STARTED, "rank_exited", "attempt_succeeded", "job_completed",
    ]  # fmt: skip
    first, second = (saved_after_notice(events, attempt) for attempt in (1, 2))
    assert (first, second) == (saved_at_the_end(events, 1), saved_at_the_end(events, 2))
    assert f"resumes {Path(second).name}" in user.dlq("logs", job)


STARTED = ("attempt_assigned", "attempt_running")
TAKEN_OFF = ("rank_exited", "attempt_preempted", "job_requeued")
TOLD = {
    *STARTED, *TAKEN_OFF, "attempt_stop_requested", "job_held", "job_released",
    "attempt_preempted_lost", "attempt_failed", "attempt_succeeded", "job_completed",
}  # fmt: skip


def is_paused(job: job_pb2.Job) -> bool:
    return job.hold_kind == job_pb2.HOLD_KIND_PAUSED and not job.HasField("attempt_state")


def told(attempt: dict[str, Any]) -> tuple[str, str | None, int]:
    """How an attempt ended, why, and what torchrun made of it."""
    (rank,) = attempt["ranks"]
    return attempt["state"], attempt["stop_cause"], rank["exit_code"]


def saved_after_notice(events: Sequence[dict[str, Any]], attempt: int) -> str:
    """The checkpoint that answered the notice: its event says how long the save took."""
    kinds = [each["kind"] for each in events if each["attempt"] == attempt]
    assert kinds.index("attempt_stop_requested") < last(kinds, "attempt_committed")
    timed = [each["data"]["path"] for each in events if "save_s" in each["data"]]
    return str(timed[attempt - 1])


def saved_at_the_end(events: Sequence[dict[str, Any]], attempt: int) -> str:
    """The newest checkpoint of an attempt."""
    committed = [each for each in events if each["kind"] == "attempt_committed"]
    return str([each["data"]["path"] for each in committed if each["attempt"] == attempt][-1])


def last(words: Sequence[str], word: str) -> int:
    return len(words) - 1 - list(reversed(words)).index(word)
