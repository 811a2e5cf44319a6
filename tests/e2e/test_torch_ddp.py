"""An unmodified PyTorch script with DataLoader workers under torchrun, taken off its GPUs twice,
ends as if it had not.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from support.framework_trial import PLAIN, Undisturbed, make_out
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

TWO_RANKS = ("--nproc-per-node", "2")
OFTEN = ("--save-every", "20", "--workers", "2")
ALL_GPUS = ("-N", "2", "--gpus-per-node", "8")


def test_preempted_by_a_job_and_paused_by_its_user_it_ends_with_the_same_weights(
    user: UsersView, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    out, unhurried = make_out(tmp_path)
    words = PLAIN.command(out, *OFTEN, "--unhurried-while", str(unhurried), torchrun=TWO_RANKS)
    job = user.submit(
        "-J", "train-ddp", "--gpus", "8",
        "--checkpoint-preset", "torchrun", "--checkpoint-dir", str(out),
        "--checkpoint-marker", "ckpt-*.pt", "-D", str(tmp_path), "--", *words,
    )  # fmt: skip

    user.wait(job, lambda now: now.HasField("checkpoint") and now.level > 0, "it saves, and sinks")
    rival = user.submit(*ALL_GPUS, "--", sys.executable, "-c", "print('all mine')")
    assert user.wait_for_end(rival).state == job_pb2.JOB_STATE_COMPLETED

    user.wait(job, lambda now: now.checkpoint.attempt == 2, "it goes on, and saves again")
    user.dlq("pause", job)
    user.wait(job, is_paused, "it is paused")
    assert "learned from 2 saves" in user.dlq("show", job)
    unhurried.unlink()
    user.dlq("resume", job)
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)

    assert (out / "final.sha256").read_text() == undisturbed.digest(PLAIN, *OFTEN, ranks=2)
    shown = user.show(job)
    assert shown["lost_gpu_seconds"] == 0
    assert [told(attempt) for attempt in shown["attempts"]] == [
        ("preempted", "preempt", 0),  # the ranks leave, and torchrun with them: only the file tells
        ("preempted", "pause", 0),
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
