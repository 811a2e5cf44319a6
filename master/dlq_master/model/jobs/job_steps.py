"""The job's machine: its events, its table and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from dlq_master.model.estimates.estimate import NOTHING_KNOWN, Basis
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs import job_changes as to
from dlq_master.model.jobs.band import Band, Segments
from dlq_master.model.jobs.eligible import Block, Dependency
from dlq_master.model.jobs.job import (
    Alternative,
    Checkpoint,
    EndReason,
    HoldKind,
    Job,
    JobState,
    KeptGpus,
    Pause,
    Resizing,
    RestartCause,
    Taken,
)
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import IllegalStep, StopCause
from dlq_master.model.values import Changes


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


class Usage(NamedTuple):
    """The consumption of an ended attempt, and the lost part of it.

    `worked_s`: the work that was not lost, in seconds of running on the GPUs that the job asked
    for.
    """

    gpu_s: float = 0.0
    executed_s: float = 0.0
    lost_gpu_s: float = 0.0
    worked_s: float = 0.0


NO_USAGE = Usage()


class Resized(NamedTuple):
    """From so many GPUs to so many, `cost_s` after it was told to save, or its ranks to join or
    leave, and why.
    """

    from_gpus: int
    to_gpus: int
    cost_s: float
    why: str
    mode: str = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Its live attempt is RUNNING for the first time; `resized`: with another number of GPUs than
    the one before it, which stopped for that."""

    resized: Resized | None = None
    gpu_type: str = ""  # of its GPUs, or SEVERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthChanged:
    """Its live attempt has other GPUs from here on: its consumption before goes into the books."""

    usage: Usage
    gpu_type: str = ""  # of all its GPUs now, or SEVERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedLive:
    """Its live attempt runs on with another number of GPUs."""

    resized: Resized


@dataclass(frozen=True, slots=True, kw_only=True)
class Demoted:
    """Its attained service crossed its level's threshold."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """It starved: head of level 0, width reserved, both counters reset.

    Not `keeps`: tail of level 0, and nothing is reserved.
    """

    keeps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """It stands in another band, or other slots are planned for it."""

    band: Band
    slots: Segments = ()
    promised: int | None = None
    verdict: str = ""
    margin: float | None = None  # of a new promise
    alternative: Alternative | None = None  # of a refusal
    pause: Pause | None = None  # of a new promise
    gpu_type: str = ""  # likewise, of a job that may get several


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeWay:
    """It stops to go on elsewhere, where it leaves room for others whose slot begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """It is to leave its GPUs for job `for_job`, which has a better claim by this rule."""

    for_job: JobId
    user: str  # whose job that is
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsPlanned:
    """It is to be profiled, by trials on so many GPUs each."""

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """It is known how long it runs on what it asks for, and so no trial is wanted any more."""

    estimate_s: float
    basis: Basis = NOTHING_KNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftUnmeasured:
    """Nobody tries any more to find out how long it runs; `basis` says why."""

    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The master promoted a committed checkpoint; `save_s` is how long that save took."""

    checkpoint: Checkpoint
    save_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """It goes on, so long after it was given the GPUs for that."""

    resume_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """Its attempt ended without ending the job (preempted, restarted, node lost ...)."""

    reason: EndReason
    usage: Usage = NO_USAGE
    exit_code: int | None = None
    signal: int | None = None
    failed_nodes: tuple[NodeId, ...] = ()  # where it was not the job's fault
    forgives: bool = False  # it had got on: its earlier failures count no more
    counts: bool = True  # False: an operator's doing
    regrant: Allocation | None = None  # it was stopped only to go on there
    measured_s: float | None = None  # all of its work at the pace of a trial that is over
    basis: Basis | None = None  # its trial told nothing, and there are to be no more
    taken: Taken | None = None  # it left for another
    resizing: Resizing | None = None  # with `regrant`
    kept: KeptGpus | None = None  # a node failed its gang: the other GPUs wait for it
    cause: RestartCause | None = None  # where the reason does not tell it


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
    detail: str = ""  # the cause and the limit of its restarts, if it had any


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """Its attempt was stopped at the job's time limit."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """Too many attempts were lost to the infrastructure: held until someone looks."""

    reason: EndReason
    usage: Usage = NO_USAGE
    failed_nodes: tuple[NodeId, ...] = ()
    cause: RestartCause | None = None  # where the reason does not tell it
    detail: str = ""  # the cause and its own limit; empty: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoids:
    """Placement keeps it off these nodes: its attempts failed there, and others exist."""

    node_ids: tuple[NodeId, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """Its user, or an operator, asks for something else. `values` are fields of the job by name."""

    values: tuple[tuple[str, object], ...]
    changes: str  # for people: "time_limit: 01:00:00 -> 02:00:00"


JobEvent = (
    Admitted
    | Rejected
    | Held
    | Released
    | Placed
    | Ran
    | WidthChanged
    | ResizedLive
    | Demoted
    | Promoted
    | Reserved
    | MadeWay
    | Displaced
    | TrialsPlanned
    | Estimated
    | LeftUnmeasured
    | Saved
    | Resumed
    | Requeued
    | Completed
    | Failed
    | TimedOut
    | Poisoned
    | Cancelled
    | Deferred
    | Eligible
    | Avoids
    | Updated
)

_P, _Q, _H = JobState.PENDING, JobState.QUEUED, JobState.HELD

TABLE: Mapping[tuple[JobState, type[JobEvent]], JobState] = {
    # the scheduler's plan
    (_P, Admitted): _Q,
    (_P, Rejected): JobState.FAILED,
    (_Q, Placed): _Q,
    **{(state, Demoted): state for state in (_Q, _H)},  # held, and its attempt still runs
    (_Q, Promoted): _Q,
    **{(state, Reserved): state for state in (_Q, _H)},  # a held one loses its slots
    (_Q, MadeWay): _Q,
    **{(state, Displaced): state for state in (_Q, _H)},  # held once it has left
    (_Q, TrialsPlanned): _Q,
    # history, or the measuring trial
    **{(state, Estimated): state for state in (_Q, _H)},
    **{(state, LeftUnmeasured): state for state in (_Q, _H)},
    # people; another kind of hold takes the place of the one before
    **{(state, Held): _H for state in (_P, _Q, _H)},
    (_H, Released): _Q,
    **{(state, Cancelled): JobState.CANCELLED for state in (_P, _Q, _H)},
    **{(state, Updated): state for state in (_P, _Q, _H)},
    # time, other jobs, the limit of its array. A task may give its place away while it is held, and
    # a held job waits for its release alone.
    **{(state, Deferred): state for state in (_P, _Q, _H)},
    **{(state, Eligible): state for state in (_P, _Q, _H)},
    # the master, when an attempt has failed or other nodes have come or gone
    **{(state, Avoids): state for state in (_Q, _H)},
    # its live attempt; a hold keeps a job from requeueing, not from ending
    **{(state, Ran): state for state in (_Q, _H)},
    **{(state, WidthChanged): state for state in (_Q, _H)},
    **{(state, ResizedLive): state for state in (_Q, _H)},
    **{(state, Saved): state for state in (_Q, _H)},
    **{(state, Resumed): state for state in (_Q, _H)},
    **{(state, Requeued): state for state in (_Q, _H)},
    **{(state, Completed): JobState.COMPLETED for state in (_Q, _H)},
    **{(state, Failed): JobState.FAILED for state in (_Q, _H)},
    **{(state, TimedOut): JobState.TIMED_OUT for state in (_Q, _H)},
    **{(state, Poisoned): _H for state in (_Q, _H)},
}


_COMPLETED = EndReason.COMPLETED  # looked up once: it costs as much as two fields of a copy
Placing = Callable[[Job, JobEvent], int | None]  # a position in its level; None: it keeps its own


def step(job: Job, event: JobEvent, *, at_s: float, placing: Placing | None = None) -> Job:
    """The job after `event` at `at_s`, where `placing` says that the event puts it.

    Raises IllegalTransition where the table has no row.
    """
    target = TABLE.get((job.state, type(event)))
    if target is None:
        raise _illegal(job, event)
    changes = _changes(job, event, at_s, waits=target is _Q)
    if placing is not None and (sequence := placing(job, event)) is not None:
        changes["sequence"] = sequence
    changes["state"], changes["version"] = target, job.version + 1
    return to.changed(job, changes)


def _changes(  # noqa: C901 one case per event
    job: Job, event: JobEvent, at_s: float, *, waits: bool
) -> Changes:
    """The fields that the event changes; `waits`: the job is QUEUED after it."""
    match event:
        case Completed():
            return to.ended_so(job, event.usage, at_s, _COMPLETED, 0)
        case Placed():
            if job.live_attempt is not None or job.blocked or event.attempt != job.attempts + 1:
                raise _illegal(job, event)
            changes = to.waits_no_more(job, at_s)
            changes["live_attempt"] = changes["attempts"] = event.attempt
            return changes
        case Ran():
            changes = to.ran_on(job, event.gpu_type)
            changes["start_time_s"], changes["resizing"] = at_s, None
            if job.first_start_time_s is None:
                changes["first_start_time_s"] = at_s
            if event.resized is not None:
                changes["resizes"] = job.resizes + 1
            return changes
        case WidthChanged():
            return to.charged(job, event.usage) | to.ran_on(job, event.gpu_type)
        case ResizedLive():
            return {"resizes": job.resizes + 1}
        case Requeued():
            return _requeued(job, event, at_s, waits=waits)
        case Failed():
            code, signal = event.exit_code, event.signal
            end = to.ended_so(job, event.usage, at_s, event.reason, code, signal)
            return end | {"hold_reason": event.detail}
        case TimedOut():
            return to.ended_so(job, event.usage, at_s, EndReason.TIME_LIMIT)
        case Cancelled():
            end = {"end_reason": EndReason.CANCELLED, **to.ended(at_s)}
            return to.waits_no_more(job, at_s) | end
        case Rejected():
            end = {"end_reason": EndReason.REJECTED, "exit_code": None, "signal": None}
            return {"hold_reason": event.reason, **end, **to.ended(at_s)}
        case Admitted():
            return {"queued_since_s": at_s}
        case Held():
            return to.waits_no_more(job, at_s) | to.held(event.kind, event.reason, event.by)
        case Released():
            free = job.live_attempt is None and job.blocked is None
            changes = {"queued_since_s": at_s if free else None, **to.held(None)}
            if job.hold is HoldKind.POISON:  # somebody has looked: it is given its chances again
                counts = job.restart_counts.forgiven()._replace(preemption=0)
                changes |= {"infra_failures": 0, "failed_nodes": (), "restart_counts": counts}
            return changes
        case Poisoned():
            return {
                **to.vacated(job, event.usage, event.reason, job.exit_code, job.signal),
                **to.left_for(job, None),
                **to.counted(job, event.reason, event.cause),
                "failed_nodes": to.blamed(job.failed_nodes, event.failed_nodes),
                **to.held(HoldKind.POISON, event.detail or event.reason.value),
            }
        case Demoted():
            return {"level": event.level}
        case Promoted():
            forgotten = dict.fromkeys(("attained_gpu_s", "executed_s", "waited_s"), 0.0)
            return {"level": 0, "promoted": event.keeps, **forgotten}
        case MadeWay():
            return {"moves": job.moves + 1}
        case Displaced():
            return {"taken": Taken(event.for_job, event.user, event.rule, at_s)}
        case Reserved():
            return _reserved(job, event)
        case TrialsPlanned():
            if job.live_attempt is not None or job.trials:
                raise _illegal(job, event)
            return {"band": Band.PROFILE, "trials": event.trials, "trial_time_s": at_s}
        case Estimated() | LeftUnmeasured():
            if job.live_attempt is not None and job.reduced:
                raise _illegal(job, event)
            if isinstance(event, LeftUnmeasured):
                return to.unmeasured(job, event.basis)
            known = {"duration_estimate_s": event.estimate_s, "basis": event.basis}
            return known | to.without_trials(job)
        case Deferred():
            if job.live_attempt is not None:
                raise _illegal(job, event)
            blocked = {"blocked": event.block, "depends": event.depends}
            return to.waits_no_more(job, at_s) | blocked
        case Eligible():
            since_s = at_s if waits else None
            return {"blocked": None, "depends": event.depends, "queued_since_s": since_s}
        case Avoids():
            if job.live_attempt is not None:
                raise _illegal(job, event)
            return {"request": replace(job.request, avoid=event.node_ids)}
        case Updated():
            return _updated(job, dict(event.values))
        case Saved():
            changes = {"checkpoint": event.checkpoint}
            if event.save_s is not None:
                changes["saves"] = (*job.saves, event.save_s)[-to.SAVES_KEPT :]
            return changes
        case Resumed():
            return {"resumes": (*job.resumes, round(event.resume_s, 3))[-to.SAVES_KEPT :]}
        case _:
            assert_never(event)


def _requeued(job: Job, event: Requeued, at_s: float, *, waits: bool) -> Changes:
    changes = to.vacated(job, event.usage, event.reason, event.exit_code, event.signal)
    changes |= to.left_for(job, event.taken)
    # It has got on since the cluster failed it: that is not the job's doing.
    failed_nodes = () if event.forgives else job.failed_nodes
    if event.counts:
        changes |= to.counted(job, event.reason, event.cause, forgives=event.forgives)
    elif event.forgives:
        changes |= {"infra_failures": 0, "restart_counts": job.restart_counts.forgiven()}
    if waits:
        changes |= {"queued_since_s": at_s, "regrant": event.regrant, "kept": event.kept}
        changes["resizing"] = None if event.regrant is None else event.resizing
    else:
        changes |= {"queued_since_s": None, "regrant": None, "kept": None, "resizing": None}
    if event.measured_s is not None:
        changes |= to.measured(job, event.measured_s)
    if event.basis is not None:
        changes |= to.unmeasured(job, event.basis)
    if event.failed_nodes:
        failed_nodes = to.blamed(failed_nodes, event.failed_nodes)
        if event.kept is None:  # else it is first in line at once
            infra_failures = changes.get("infra_failures", job.infra_failures)
            counts = changes.get("restart_counts", job.restart_counts)
            by_cluster = counts.node + counts.gpu + counts.start  # 0: of a former master
            changes |= _backs_off(job, max(infra_failures, by_cluster), at_s)
    elif event.reason is EndReason.PREEMPTED:
        failed_nodes = ()  # it has run well since
    changes["failed_nodes"] = failed_nodes
    return changes


def _backs_off(job: Job, infra_failures: int, at_s: float) -> Changes:
    """It is tried again a little later, and later each time."""
    wait_s = job.rules.retry_backoff_s * 2.0 ** (max(1, infra_failures) - 1)
    if wait_s <= 0.0:
        return {}
    return {"retry_time_s": at_s + wait_s, "blocked": Block.BACKOFF, "queued_since_s": None}


def _reserved(job: Job, event: Reserved) -> Changes:
    """Its promise stands on GPUs of the type ("": as before) as long as it has one."""
    changes: Changes = {
        "band": event.band,
        "slots": event.slots,
        "promised": event.promised,
        "verdict": event.verdict,
    }
    if event.promised is None or event.gpu_type:
        changes["gpu_type_promised"] = "" if event.promised is None else event.gpu_type
    if event.margin is not None:
        changes |= {"margin": event.margin, "pause": event.pause or job.pause}
    if event.verdict != job.verdict:
        changes["alternative"] = event.alternative
    return changes


def _updated(job: Job, values: Changes) -> Changes:
    """A measurement, past or to come, says nothing of another size."""
    asked = values.get("request", job.request)
    resized = asked.gpus != job.request.gpus or asked.nodes != job.request.nodes
    if resized and (job.trials or job.measured_s):
        return values | {"trials": (), "measured_s": (), "band": Band.SPOT}
    return values


def stops(event: JobEvent) -> StopCause | None:
    """Why a live attempt has to stop after this event of its job; None: it goes on."""
    match event:
        case Cancelled():
            return StopCause.CANCEL
        case Held(kind=HoldKind.PAUSED):
            return StopCause.PAUSE
    return None


def vacated(job: Job, usage: Usage) -> Job:
    """An ended job after its last attempt ended too: the books are closed, no state changes."""
    closed = {"live_attempt": None, "version": job.version + 1}
    return to.changed(job, to.charged(job, usage) | closed)


def _illegal(job: Job, event: JobEvent) -> IllegalStep:
    return IllegalStep("job", str(job.job_id), job.state, event)
