"""Refuses a change that would lose the work of jobs, for a caller that has not accepted that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlq_common.errors import WorkWouldBeLost
from dlq_common.text.units import approximate_span
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts.unsaved import (
    DID_NOT_SAVE,
    NEVER_SAVED,
    NOT_KEPT,
    OFF_GPUS,
    Loss,
    stop_loss,
)
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id

MOST_NAMED = 8  # a status holds no more text
PAUSE, REQUEUE, DRAIN = "dlq pause -y", "dlq requeue -y", "dlq admin node drain -y"
RESERVE = "dlq admin reserve -y"


def refuse(turn: Turn, keys: Iterable[AttemptKey | None], command: str) -> None:
    """WorkWouldBeLost when a stop of one of these attempts would lose work; `command` would do it.

    Attempts that are told to stop already lose nothing by this change.
    """
    stopped = dict.fromkeys(it for key in keys if key is not None for it in _with_group(turn, key))
    told = [words for key in stopped if (words := _words(turn, key, command))]
    if not told:
        return
    more = f"; and that of {len(told) - MOST_NAMED} more jobs" if len(told) > MOST_NAMED else ""
    raise WorkWouldBeLost("; ".join(told[:MOST_NAMED]) + more, hint=f"{command} does it")


def loss_words(job: Job, loss: Loss) -> str:
    """`job 7 has never saved and says nothing of how: up to 3 h 12 min of work on 4 GPUs`. It is a
    bound, since work may be saved where nobody looks.
    """
    kind = "core" if job.request.without_gpus else "GPU"
    count = f"{loss.gpus} {kind}" if loss.gpus == 1 else f"{loss.gpus} {kind}s"
    work = f"up to {approximate_span(loss.work_s)} of work on {count}"
    return f"job {shown_id(job)} {_GROUNDS[loss.ground]}: {work}"


# --- helpers, in order of use ---------------------------------------------------------------------


def _with_group(turn: Turn, key: AttemptKey) -> Iterator[AttemptKey]:
    """It, and those that leave with it."""
    yield key
    cluster = turn.state.cluster
    group = cluster.jobs[key.job_id].group
    for job_id in () if group is None else cluster.groups.get(group.array_id, ()):
        other = cluster.jobs[job_id].live_key
        if other is not None:
            yield other


def _words(turn: Turn, key: AttemptKey, command: str) -> str:
    cluster = turn.state.cluster
    attempt, job = cluster.attempts[key], cluster.jobs[key.job_id]
    off = command in (PAUSE, REQUEUE) and attempt.suspension is not None  # a drain lets it save
    loss = stop_loss(job, attempt, turn.now_s, off_gpus=off) if attempt.stop_cause is None else None
    return "" if loss is None else f"{loss_words(job, loss)} would be lost"


_GROUNDS = {
    NEVER_SAVED: "has never saved and says nothing of how",
    DID_NOT_SAVE: "has never saved, although it says how it does, and has lost work before",
    NOT_KEPT: "cannot go on from what it has saved",
    OFF_GPUS: "cannot save without its GPUs (resume it first)",
}
