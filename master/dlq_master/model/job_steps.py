"""The job's machine: its events, its table and the one function that applies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from dlq_master.model.eligible import Block, Dependency
from dlq_master.model.job import Checkpoint, EndReason, HoldKind, Job, JobState
from dlq_master.model.machine import (
    Changes,
    Effect,
    IllegalTransition,
    Step,
    StopAttempt,
    StopCause,
    evolve,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The admit stage let it in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The admit stage refused it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Someone, or the poison rule, keeps it from starting. PAUSED also stops a live attempt."""

    kind: HoldKind
    reason: str = ""
    by: str = ""  # a user's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The hold is over (release, resume)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A plan started attempt `attempt`: GPUs are claimed, nothing runs yet."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Its live attempt is RUNNING for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demoted:
    """Its attained service crossed its level's threshold."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """It starved: head of level 0, width reserved, both counters reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The master promoted a committed checkpoint; `save_s` is how long that save took."""

    checkpoint: Checkpoint
    save_s: float | None = None


class Usage(NamedTuple):
    """What an ended attempt consumed and what of it was lost."""

    gpu_s: float = 0.0
    executed_s: float = 0.0
    lost_gpu_s: float = 0.0


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """Its attempt ended without ending the job (preempted, restarted, node lost ...)."""

    reason: EndReason
    usage: Usage = NO_USAGE
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Its attempt succeeded."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Its attempt failed and no retry is left."""

    reason: EndReason
    usage: Usage = NO_USAGE
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """Its attempt was stopped at the job's time limit."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """Too many attempts were lost to the infrastructure: held until someone looks."""

    reason: EndReason
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The user or an admin ended it; a live attempt is stopped and finishes by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """It may not wait yet: its begin, its dependency, or the limit of its array."""

    block: Block
    depends: Dependency | None = None  # with what is known of it by now


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligible:
    """Nothing keeps it from waiting any more; its waiting counts from here."""

    depends: Dependency | None = None  # likewise


JobEvent = (
    Admitted
    | Rejected
    | Held
    | Released
    | Placed
    | Ran
    | Demoted
    | Promoted
    | Saved
    | Requeued
    | Completed
    | Failed
    | TimedOut
    | Poisoned
    | Cancelled
    | Deferred
    | Eligible
)

_P, _Q, _H = JobState.PENDING, JobState.QUEUED, JobState.HELD

TABLE: Mapping[tuple[JobState, type[JobEvent]], JobState] = {
    # the scheduler's plan
    (_P, Admitted): _Q,
    (_P, Rejected): JobState.FAILED,
    (_Q, Placed): _Q,
    (_Q, Demoted): _Q,
    (_H, Demoted): _H,  # a held job whose attempt still runs
    (_Q, Promoted): _Q,
    # people
    (_P, Held): _H,
    (_Q, Held): _H,
    (_H, Held): _H,  # another kind of hold takes its place
    (_H, Released): _Q,
    (_P, Cancelled): JobState.CANCELLED,
    (_Q, Cancelled): JobState.CANCELLED,
    (_H, Cancelled): JobState.CANCELLED,
    # time, other jobs, the limit of its array
    (_P, Deferred): _P,
    (_Q, Deferred): _Q,  # a task that gave its place away while it was held
    (_H, Deferred): _H,
    (_P, Eligible): _P,
    (_Q, Eligible): _Q,
    (_H, Eligible): _H,  # it waits for its release alone
    # its live attempt; a hold keeps a job from requeueing, not from ending
    (_Q, Ran): _Q,
    (_H, Ran): _H,
    (_Q, Saved): _Q,
    (_H, Saved): _H,
    (_Q, Requeued): _Q,
    (_H, Requeued): _H,
    (_Q, Completed): JobState.COMPLETED,
    (_H, Completed): JobState.COMPLETED,
    (_Q, Failed): JobState.FAILED,
    (_H, Failed): JobState.FAILED,
    (_Q, TimedOut): JobState.TIMED_OUT,
    (_H, TimedOut): JobState.TIMED_OUT,
    (_Q, Poisoned): _H,
    (_H, Poisoned): _H,
}

SAVES_KEPT = 20
_INFRA = frozenset({EndReason.NODE_LOST, EndReason.START_FAILED})
_PREEMPTED = frozenset({EndReason.PREEMPTED, EndReason.PREEMPTED_LOST})
_RESTARTED = frozenset({EndReason.USER_ERROR, EndReason.OOM_HOST, EndReason.SIGNAL})


def step(job: Job, event: JobEvent, *, at_s: float) -> Step[Job]:  # noqa: C901 one case per event
    """The job after `event` at `at_s`; raises IllegalTransition where the table has no row."""
    target = TABLE.get((job.state, type(event)))
    if target is None:
        raise IllegalTransition("job", str(job.job_id), job.state, event)
    effects: tuple[Effect, ...] = ()
    match event:
        case Completed():
            changes = _ended(job, EndReason.COMPLETED, event.usage, at_s, exit_code=0)
        case Placed():
            changes = _placed(job, event, at_s)
        case Ran():
            first = at_s if job.first_start_time_s is None else job.first_start_time_s
            changes = {"first_start_time_s": first, "start_time_s": at_s}
        case Requeued():
            changes = _requeued(job, event, at_s)
        case Failed():
            changes = _ended(job, event.reason, event.usage, at_s, event.exit_code)
            changes["signal"] = event.signal
        case TimedOut():
            changes = _ended(job, EndReason.TIME_LIMIT, event.usage, at_s)
        case Cancelled():
            changes = _stopped_waiting(job, at_s)
            changes |= {"hold": None, "end_time_s": at_s, "end_reason": EndReason.CANCELLED}
            changes["blocked"] = None
            effects = _stop(job, StopCause.CANCEL)
        case Rejected():
            changes = {"end_time_s": at_s, "end_reason": EndReason.REJECTED}
            changes["hold_reason"] = event.reason
        case Admitted():
            changes = {"queued_since_s": at_s}
        case Held():
            changes = _stopped_waiting(job, at_s)
            changes |= {"hold": event.kind, "hold_reason": event.reason, "held_by": event.by}
            effects = _stop(job, StopCause.PAUSE) if event.kind is HoldKind.PAUSED else ()
        case Released():
            waits = at_s if job.live_attempt is None and job.blocked is None else None
            changes = {"hold": None, "hold_reason": "", "held_by": "", "queued_since_s": waits}
            if job.hold is HoldKind.POISON:  # somebody has looked: it is given its chances again
                changes["infra_failures"] = 0
        case Poisoned():
            changes = _vacated(job, event.usage)
            changes |= {"hold": HoldKind.POISON, "hold_reason": event.reason.value, "held_by": ""}
            changes |= {"end_reason": event.reason, "infra_failures": job.infra_failures + 1}
        case Demoted():
            changes = {"level": event.level}
        case Promoted():
            changes = {"level": 0, "promoted": True}
            changes |= {"attained_gpu_s": 0.0, "executed_s": 0.0, "waited_s": 0.0}
        case Deferred():
            changes = _deferred(job, event, at_s)
        case Eligible():
            waits = at_s if job.state is JobState.QUEUED else None
            changes = {"blocked": None, "depends": event.depends, "queued_since_s": waits}
        case Saved():
            saves = job.saves if event.save_s is None else (*job.saves, event.save_s)
            changes = {"checkpoint": event.checkpoint, "saves": saves[-SAVES_KEPT:]}
        case _:
            assert_never(event)
    changes["state"] = target
    changes["version"] = job.version + 1
    return Step(evolve(job, changes), effects)


def vacated(job: Job, usage: Usage) -> Job:
    """An ended job after its last attempt ended too: the books are closed, no state changes."""
    return evolve(job, _vacated(job, usage) | {"version": job.version + 1})


def _deferred(job: Job, event: Deferred, at_s: float) -> Changes:
    if job.live_attempt is not None:
        raise IllegalTransition("job", str(job.job_id), job.state, event)
    return _stopped_waiting(job, at_s) | {"blocked": event.block, "depends": event.depends}


def _placed(job: Job, event: Placed, at_s: float) -> Changes:
    if job.live_attempt is not None or job.blocked or event.attempt != job.attempts + 1:
        raise IllegalTransition("job", str(job.job_id), job.state, event)
    return {
        "live_attempt": event.attempt,
        "attempts": event.attempt,
        "promoted": False,
        "waited_s": _waited(job, at_s),
        "queued_since_s": None,
    }


def _requeued(job: Job, event: Requeued, at_s: float) -> Changes:
    reason = event.reason
    return _vacated(job, event.usage) | {
        "queued_since_s": at_s if job.state is JobState.QUEUED else None,
        "end_reason": reason,
        "exit_code": event.exit_code,
        "signal": event.signal,
        "preemptions": job.preemptions + (reason in _PREEMPTED),
        "infra_failures": job.infra_failures + (reason in _INFRA),
        "requeues": job.requeues + (reason is EndReason.REQUEUE_EXIT),
        "restarts": job.restarts + (reason in _RESTARTED),
    }


def _ended(
    job: Job, reason: EndReason, usage: Usage, at_s: float, exit_code: int | None = None
) -> Changes:
    changes = _vacated(job, usage)
    changes["hold"] = None
    changes["end_time_s"] = at_s
    changes["end_reason"] = reason
    changes["exit_code"] = exit_code
    changes["signal"] = None
    changes["queued_since_s"] = None
    return changes


def _vacated(job: Job, usage: Usage) -> Changes:
    gpu_s, executed_s, lost_gpu_s = usage
    return {
        "live_attempt": None,
        "attained_gpu_s": job.attained_gpu_s + gpu_s,
        "executed_s": job.executed_s + executed_s,
        "total_gpu_s": job.total_gpu_s + gpu_s,
        "total_executed_s": job.total_executed_s + executed_s,
        "lost_gpu_s": job.lost_gpu_s + lost_gpu_s,
    }


def _stopped_waiting(job: Job, at_s: float) -> Changes:
    return {"waited_s": _waited(job, at_s), "queued_since_s": None, "promoted": False}


def _waited(job: Job, at_s: float) -> float:
    # Waiting before the first run does not count: PROMOTEKNOB compares waiting with execution.
    if job.queued_since_s is None or not job.executed_s:
        return job.waited_s
    return job.waited_s + (at_s - job.queued_since_s)


def _stop(job: Job, cause: StopCause) -> tuple[Effect, ...]:
    return () if job.live_key is None else (StopAttempt(job.live_key, cause),)
