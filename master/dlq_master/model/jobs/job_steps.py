"""The job's machine: its events, its table and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from dlq_master.model.estimates.estimate import NOTHING_KNOWN, Basis
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs import job_draft as to
from dlq_master.model.jobs.band import Band, Segments
from dlq_master.model.jobs.eligible import Block, Dependency
from dlq_master.model.jobs.job import (
    Alternative,
    Checkpoint,
    EndReason,
    HoldKind,
    Job,
    JobState,
    Pause,
    Resizing,
    Taken,
)
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import IllegalStep, StopCause


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
    failed_nodes: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoids:
    """Placement keeps it off these nodes from here on: its attempts failed there, and others
    exist.
    """

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
    (_Q, Demoted): _Q,
    (_H, Demoted): _H,  # a held job whose attempt still runs
    (_Q, Promoted): _Q,
    (_Q, Reserved): _Q,
    (_Q, MadeWay): _Q,
    (_Q, Displaced): _Q,
    (_H, Displaced): _H,  # held once it has left
    (_H, Reserved): _H,  # what is held loses its slots
    (_Q, TrialsPlanned): _Q,
    # history, or the measuring trial
    (_Q, Estimated): _Q,
    (_H, Estimated): _H,
    (_Q, LeftUnmeasured): _Q,
    (_H, LeftUnmeasured): _H,
    # people
    (_P, Held): _H,
    (_Q, Held): _H,
    (_H, Held): _H,  # another kind of hold takes its place
    (_H, Released): _Q,
    (_P, Cancelled): JobState.CANCELLED,
    (_Q, Cancelled): JobState.CANCELLED,
    (_H, Cancelled): JobState.CANCELLED,
    (_P, Updated): _P,
    (_Q, Updated): _Q,
    (_H, Updated): _H,
    # time, other jobs, the limit of its array
    (_P, Deferred): _P,
    (_Q, Deferred): _Q,  # a task that gave its place away while it was held
    (_H, Deferred): _H,
    (_P, Eligible): _P,
    (_Q, Eligible): _Q,
    (_H, Eligible): _H,  # it waits for its release alone
    # the master, when an attempt has failed or other nodes have come or gone
    (_Q, Avoids): _Q,
    (_H, Avoids): _H,
    # its live attempt; a hold keeps a job from requeueing, not from ending
    (_Q, Ran): _Q,
    (_H, Ran): _H,
    (_Q, WidthChanged): _Q,
    (_H, WidthChanged): _H,
    (_Q, ResizedLive): _Q,
    (_H, ResizedLive): _H,
    (_Q, Saved): _Q,
    (_H, Saved): _H,
    (_Q, Resumed): _Q,
    (_H, Resumed): _H,
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


Placing = Callable[[Job, JobEvent], int | None]  # a position in its level; None: it keeps its own


def step(  # noqa: C901 one case per event
    job: Job, event: JobEvent, *, at_s: float, placing: Placing | None = None
) -> Job:
    """The job after `event` at `at_s`, where `placing` says that the event puts it.

    Raises IllegalTransition where the table has no row.
    """
    target = TABLE.get((job.state, type(event)))
    if target is None:
        raise _illegal(job, event)
    draft = list(job)
    match event:
        case Completed():
            to.vacate(draft, event.usage)
            to.explain(draft, EndReason.COMPLETED, exit_code=0)
            to.end(draft, at_s)
        case Placed():
            if job.live_attempt is not None or job.blocked or event.attempt != job.attempts + 1:
                raise _illegal(job, event)
            to.place(draft, event.attempt, at_s)
        case Ran():
            to.run(draft, at_s, resized=event.resized is not None)
            to.run_on(draft, event.gpu_type)
        case WidthChanged():
            to.charge(draft, event.usage)
            to.run_on(draft, event.gpu_type)
        case ResizedLive():
            to.resize(draft)
        case Requeued():
            to.vacate(draft, event.usage)
            to.explain(draft, event.reason, event.exit_code, event.signal)
            if event.forgives:
                to.acquit(draft)
            if event.counts:
                to.count(draft, event.reason)
            to.left(draft, event.taken)
            to.wait(draft, at_s if target is _Q else None)
            to.return_to(draft, event.regrant if target is _Q else None, event.resizing)
            if event.measured_s is not None:
                to.measure(draft, event.measured_s)
            if event.basis is not None:
                to.leave_unmeasured(draft, event.basis)
            if event.failed_nodes:
                to.blame(draft, event.failed_nodes)
                to.back_off(draft, at_s)
            elif job.failed_nodes and event.reason is EndReason.PREEMPTED:
                to.forgive(draft)  # it has run well since
        case Failed():
            to.vacate(draft, event.usage)
            to.explain(draft, event.reason, event.exit_code, event.signal)
            to.end(draft, at_s)
        case TimedOut():
            to.vacate(draft, event.usage)
            to.explain(draft, EndReason.TIME_LIMIT)
            to.end(draft, at_s)
        case Cancelled():
            to.stop_waiting(draft, at_s)
            to.explain(draft, EndReason.CANCELLED, job.exit_code, job.signal)
            to.end(draft, at_s)
        case Rejected():
            to.refuse(draft, event.reason)
            to.explain(draft, EndReason.REJECTED)
            to.end(draft, at_s)
        case Admitted():
            to.wait(draft, at_s)
        case Held():
            to.stop_waiting(draft, at_s)
            to.hold(draft, event.kind, event.reason, event.by)
        case Released():
            to.release(draft)
            free = job.live_attempt is None and job.blocked is None
            to.wait(draft, at_s if free else None)
        case Poisoned():
            to.vacate(draft, event.usage)
            to.explain(draft, event.reason, job.exit_code, job.signal)
            to.count(draft, event.reason)
            to.blame(draft, event.failed_nodes)
            to.hold(draft, HoldKind.POISON, event.reason.value)
        case Demoted():
            to.demote(draft, event.level)
        case Promoted():
            to.promote(draft, event.keeps)
        case MadeWay():
            to.make_way(draft)
        case Displaced():
            to.displace(draft, Taken(event.for_job, event.user, event.rule, at_s))
        case Reserved():
            to.reserve(draft, event.band, event.slots, event.promised, event.verdict)
            to.bind(draft, event.gpu_type)
            if event.margin is not None:
                to.add_margin(draft, event.margin, event.pause)
            if event.verdict != job.verdict:
                to.offer(draft, event.alternative)
        case TrialsPlanned():
            if job.live_attempt is not None or job.trials:
                raise _illegal(job, event)
            to.try_on(draft, event.trials, at_s)
        case Estimated():
            if job.live_attempt is not None and job.reduced:
                raise _illegal(job, event)
            to.estimate(draft, event.estimate_s, event.basis)
        case LeftUnmeasured():
            if job.live_attempt is not None and job.reduced:
                raise _illegal(job, event)
            to.leave_unmeasured(draft, event.basis)
        case Deferred():
            if job.live_attempt is not None:
                raise _illegal(job, event)
            to.stop_waiting(draft, at_s)
            to.block(draft, event.block, event.depends)
        case Eligible():
            to.block(draft, None, event.depends)
            to.wait(draft, at_s if target is _Q else None)
        case Avoids():
            if job.live_attempt is not None:
                raise _illegal(job, event)
            to.avoid(draft, event.node_ids)
        case Updated():
            to.update(draft, event.values)
        case Saved():
            to.save(draft, event.checkpoint, event.save_s)
        case Resumed():
            to.resume(draft, event.resume_s)
        case _:
            assert_never(event)
    if placing is not None and (sequence := placing(job, event)) is not None:
        to.move(draft, sequence)
    return to.sealed(draft, target)


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
    draft = list(job)
    to.vacate(draft, usage)
    return to.sealed(draft, job.state)


def _illegal(job: Job, event: JobEvent) -> IllegalStep:
    return IllegalStep("job", str(job.job_id), job.state, event)
