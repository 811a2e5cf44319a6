"""What an ended attempt means for its job: done, again, or held."""

from __future__ import annotations

from dlq_master.model.attempt import Attempt, AttemptState
from dlq_master.model.grace import work_at_risk_s
from dlq_master.model.job import EndReason, Job
from dlq_master.model.job_steps import (
    Cancelled,
    Completed,
    Failed,
    JobEvent,
    Poisoned,
    Requeued,
    TimedOut,
    Usage,
)

_WORK_KEPT = frozenset({AttemptState.SUCCEEDED, AttemptState.PREEMPTED})


def usage(attempt: Attempt) -> Usage:
    """What the ended attempt consumed, and what of it has to be done again."""
    if attempt.started_time_s is None or attempt.ended_time_s is None:
        return Usage()
    executed_s = attempt.executed_s(attempt.ended_time_s)
    width = attempt.lease.allocation.width
    kept = attempt.state in _WORK_KEPT
    lost_s = 0.0 if kept else work_at_risk_s(attempt, attempt.ended_time_s)
    return Usage(gpu_s=executed_s * width, executed_s=executed_s, lost_gpu_s=lost_s * width)


def outcome(job: Job, attempt: Attempt) -> JobEvent:
    """The job event that follows from its ended attempt; the job has not ended yet."""
    used = usage(attempt)
    reason = attempt.end_reason or EndReason.USER_ERROR
    match attempt.state:
        case AttemptState.SUCCEEDED:
            return Completed(usage=used)
        case AttemptState.PREEMPTED | AttemptState.PREEMPTED_LOST:
            return Requeued(reason=reason, usage=used, exit_code=attempt.exit_code)
        case AttemptState.NODE_LOST | AttemptState.START_FAILED:
            if job.infra_failures + 1 >= job.rules.max_infra_failures:
                return Poisoned(reason=reason, usage=used)
            return Requeued(reason=reason, usage=used)
        case AttemptState.FAILED:
            asked = reason is EndReason.REQUEUE_EXIT
            spent = job.requeues if asked else job.restarts
            allowed = job.rules.max_requeues if asked else job.rules.max_restarts
            if spent < allowed:
                return Requeued(reason=reason, usage=used, exit_code=attempt.exit_code)
            return Failed(reason=reason, usage=used, exit_code=attempt.exit_code)
        case AttemptState.TIMED_OUT:
            return TimedOut(usage=used)
        case AttemptState.CANCELLED:
            return Cancelled()
        case _:
            raise ValueError(f"attempt {attempt.key} is still {attempt.state.value}")
