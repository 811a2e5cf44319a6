"""Refuses a change that would lose the work of jobs, for a caller that has not accepted that."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_common.errors import WorkWouldBeLost
from dlq_master.control.turn import Turn
from dlq_master.model.ids import AttemptKey
from dlq_master.model.unsaved import Loss, stop_loss

MOST_NAMED = 8  # a status holds no more text
PAUSE, REQUEUE, DRAIN = "dlq pause -y", "dlq requeue -y", "dlq admin node drain -y"
RESERVE = "dlq admin reserve -y"


def refuse(turn: Turn, keys: Iterable[AttemptKey | None], command: str) -> None:
    """WorkWouldBeLost when a stop of one of these attempts would lose work; `command` would do it.

    Attempts that are told to stop already lose nothing by this change.
    """
    losses = [loss for key in keys if key is not None and (loss := _loss(turn, key)) is not None]
    if not losses:
        return
    told = [f"{loss.cause}: {loss.work} would be lost" for loss in losses[:MOST_NAMED]]
    if len(losses) > MOST_NAMED:
        told.append(f"and that of {len(losses) - MOST_NAMED} more jobs")
    raise WorkWouldBeLost("; ".join(told), hint=f"{command} does it", id=losses[0].name)


def _loss(turn: Turn, key: AttemptKey) -> Loss | None:
    cluster = turn.state.cluster
    attempt = cluster.attempts[key]
    if attempt.stop_cause is not None:
        return None
    return stop_loss(cluster.jobs[key.job_id], attempt, turn.now_s)
