"""Ranks make an attempt: what one rank's report means for all of them, and how it ended."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.attempt_steps import (
    AttemptEvent,
    Cancelled,
    Failed,
    Preempted,
    PreemptedLost,
    Preparing,
    Running,
    StartFailed,
    Starting,
    StopRequested,
    Succeeded,
    TimedOut,
)
from dlq_master.model.ids import NodeId
from dlq_master.model.job import EndReason, ExitZeroInGrace, RunRules
from dlq_master.model.machine import StopCause

PHASES = tuple(RankPhase)
_BEFORE_RUNNING = (AttemptState.ASSIGNED, AttemptState.PREPARING, AttemptState.STARTING)


class Gathered(NamedTuple):
    """The attempt with its ranks brought up to date, and the events that follow, in order."""

    attempt: Attempt
    events: tuple[AttemptEvent, ...] = ()


def rank_of(attempt: Attempt, node_id: NodeId) -> int:
    """The rank placed on the node; raises KeyError if the attempt has none there."""
    for rank, status in enumerate(attempt.ranks):
        if status.node_id == node_id:
            return rank
    raise KeyError(f"attempt {attempt.key} has no rank on {node_id}")


def aggregate(attempt: Attempt, report: RankStatus, rules: RunRules) -> Gathered:
    """What a rank's report changes. A repeated or overtaken report changes nothing.

    The gang runs when all ranks run; when one fails the others are to be stopped and the first
    that failed is named; it has ended only when all ranks are confirmed gone.
    """
    rank = rank_of(attempt, report.node_id)
    known = attempt.ranks[rank]
    if not attempt.live or PHASES.index(report.phase) <= PHASES.index(known.phase):
        return Gathered(attempt)
    ranks = (*attempt.ranks[:rank], report, *attempt.ranks[rank + 1 :])
    after = attempt._replace(ranks=ranks)
    if report.failed and after.first_failed_rank is None and after.stop_cause is None:
        after = after._replace(first_failed_rank=rank)
    if all(status.phase is RankPhase.EXITED for status in ranks):
        return Gathered(after, (verdict(after, rules),))
    if report.failed and after.stop_cause is None:
        stop = StopRequested(cause=StopCause.GANG_FAILURE, grace_s=0.0, detail=f"rank {rank}")
        return Gathered(after, (stop,))
    return Gathered(after, _progress(after))


def verdict(attempt: Attempt, rules: RunRules) -> AttemptEvent:
    """How an attempt ended whose ranks are all gone.

    While it was being stopped for somebody else a checkpoint committed after the notice is the
    only proof that its work is saved; so is an exit code agreed for it. Exit code 0 then means
    "saved and left" unless the job says otherwise: running a finished job again costs little,
    dropping an unfinished one costs all.
    """
    cause = attempt.stop_cause
    if cause is StopCause.CANCEL:
        return Cancelled()
    if cause is StopCause.TIME_LIMIT:
        return TimedOut()
    if cause is None or cause is StopCause.GANG_FAILURE:
        return _own_end(attempt, rules)
    ranks = attempt.ranks
    clean = not any(status.failed for status in ranks)
    done = any(status.done_file for status in ranks)
    if clean and (done or rules.exit0_in_grace is ExitZeroInGrace.COMPLETED):
        return Succeeded()
    failed = next((status for status in ranks if status.failed), None)
    exit_code = 0 if failed is None else failed.exit_code
    if _saved(attempt) or any(status.exit_code in rules.requeue_exit_codes for status in ranks):
        return Preempted(exit_code=exit_code)
    return PreemptedLost(exit_code=exit_code)


def _saved(attempt: Attempt) -> bool:
    notice_s, checkpoint = attempt.notice_time_s, attempt.checkpoint
    return notice_s is not None and checkpoint is not None and checkpoint.time_s >= notice_s


def _own_end(attempt: Attempt, rules: RunRules) -> AttemptEvent:
    failed = next((status for status in attempt.ranks if status.failed), None)
    if attempt.first_failed_rank is not None:
        failed = attempt.ranks[attempt.first_failed_rank]
    if failed is None:
        return Succeeded()
    if failed.start_error:
        return StartFailed(detail=failed.start_error)
    if failed.exit_code in rules.requeue_exit_codes:
        reason = EndReason.REQUEUE_EXIT
    elif failed.oom_killed:
        reason = EndReason.OOM_HOST
    else:
        reason = EndReason.SIGNAL if failed.signal else EndReason.USER_ERROR
    return Failed(reason=reason, exit_code=failed.exit_code, signal=failed.signal)


def _progress(attempt: Attempt) -> tuple[AttemptEvent, ...]:
    # A stopping or silent attempt does not advance; its ranks are still recorded.
    if attempt.state not in _BEFORE_RUNNING:
        return ()
    phases = [PHASES.index(status.phase) for status in attempt.ranks]
    if min(phases) >= PHASES.index(RankPhase.RUNNING):
        return (Running(),)
    if min(phases) >= PHASES.index(RankPhase.STARTING):
        return () if attempt.state is AttemptState.STARTING else (Starting(),)
    return (Preparing(),) if attempt.state is AttemptState.ASSIGNED else ()
