"""The attempt's machine: its events, its table and the one function that applies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from dlq_master.model.attempts import live_resize, suspending
from dlq_master.model.attempts.attempt import (
    Attempt,
    AttemptState,
    LiveResize,
    Suspension,
    SuspensionPhase,
)
from dlq_master.model.estimates.estimate import Basis
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Checkpoint, EndReason
from dlq_master.model.lease import LeaseKind, until
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import IllegalStep, StopCause
from dlq_master.model.values import Changes, changer


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """A node began to prepare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """All nodes are prepared; ranks wait at the barrier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """All ranks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The master wants it gone: notice, grace, TERM, KILL."""

    cause: StopCause
    grace_s: float
    detail: str = ""
    regrant: Allocation | None = None  # its job goes on there at once
    measured_s: float | None = None  # of a trial: its results ...
    unmeasured: Basis | None = None  # ... or why it has told nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSilent:
    """One of its nodes became UNREACHABLE; the other ranks are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedAssigned:
    """All nodes answer again; it had not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedPreparing:
    """All nodes answer again; it prepares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedStarting:
    """All nodes answer again; it waits at the barrier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedRunning:
    """All nodes answer again; it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedPausing:
    """All nodes answer again; it is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The scheduler renewed its lease."""

    term_end_s: float
    kind: LeaseKind | None = None  # of the new term; None: as before


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """It committed a checkpoint."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeBegun:
    """It goes on with these GPUs while it runs: ranks join, or leave after their notice."""

    allocation: Allocation
    grace_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAsked:
    """The ranks on these nodes leave while the others go on."""

    node_ids: tuple[NodeId, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeSettled:
    """Each leaving rank is proven gone, and each joining rank runs, or is not there either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendAsked:
    """Its ranks are to leave their GPUs without a save, for a job or by a person's wish. `until_s`:
    they have no more time than a save would have had. `lasts_s`: it is off its GPUs no longer.
    """

    for_job: JobId | None = None
    why: str = ""
    memory_bytes: int = 0  # expected in the memory of its hosts
    until_s: float | None = None
    lasts_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """All its ranks stand still off their GPUs, which are proven free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRefused:
    """A rank did not leave. All of them run on, or come back."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """Its GPUs are its own again until the end of this term, and its ranks are to come back.
    `allocation`: its GPUs from now on; None: the same as before. `to_save`: only to save and leave.
    """

    term_end_s: float
    allocation: Allocation | None = None
    to_save: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsuspended:
    """All its ranks run on their GPUs again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBack:
    """A person wants it back as soon as its GPUs are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedSuspended:
    """All nodes answer again; it is suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """All ranks exited with 0, or the program said that it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial of another size than its job's own is over; nothing of it is kept."""

    work_s: float | None  # all of the job's work at the pace that it had
    unmeasured: Basis | None = None  # why that is not known, and there is to be no other trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A rank failed, or the program asked to be requeued; all ranks are gone."""

    reason: EndReason
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Stopped for somebody else, its work saved."""

    exit_code: int | None = None
    worked_s: float | None = None  # seconds of work that it did; None: all but what was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedLost:
    """Stopped for somebody else without a newer checkpoint."""

    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Stopped because its job was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """Stopped at its job's time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost:
    """A node is gone: hold_until + margin passed, another boot id, or an operator's fence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """It never ran: image, device, directory or barrier."""

    detail: str = ""


AttemptEvent = (
    Preparing
    | Starting
    | Running
    | StopRequested
    | NodeSilent
    | ReturnedAssigned
    | ReturnedPreparing
    | ReturnedStarting
    | ReturnedRunning
    | ReturnedPausing
    | Renewed
    | Committed
    | ResizeBegun
    | LeaveAsked
    | ResizeSettled
    | SuspendAsked
    | Suspended
    | SuspendRefused
    | ResumeAsked
    | Unsuspended
    | WantedBack
    | ReturnedSuspended
    | Succeeded
    | Measured
    | Failed
    | Preempted
    | PreemptedLost
    | Cancelled
    | TimedOut
    | NodeLost
    | StartFailed
)

_S = AttemptState
_A, _P, _B, _R, _Z, _X, _U = (
    _S.ASSIGNED,
    _S.PREPARING,
    _S.STARTING,
    _S.RUNNING,
    _S.SUSPENDED,
    _S.PAUSING,
    _S.UNKNOWN,
)

TABLE: Mapping[tuple[AttemptState, type[AttemptEvent]], AttemptState] = {
    # the agents' reports; one may be lost or overtaken, so phases may be skipped
    (_A, Preparing): _P,
    (_A, Starting): _B,
    (_P, Starting): _B,
    (_A, Running): _R,
    (_P, Running): _R,
    (_B, Running): _R,
    # the scheduler, people, the master's timers
    (_A, StopRequested): _X,
    (_P, StopRequested): _X,
    (_B, StopRequested): _X,
    (_R, StopRequested): _X,
    (_Z, StopRequested): _X,  # without its GPUs it can save nothing
    (_X, StopRequested): _X,  # another cause, or a shorter grace
    (_U, StopRequested): _U,  # remembered until the node returns
    **{(state, Renewed): state for state in (_A, _P, _B, _R, _U)},
    # node liveness
    **{(state, NodeSilent): _U for state in (_A, _P, _B, _R, _Z, _X)},
    (_U, ReturnedAssigned): _A,
    (_U, ReturnedPreparing): _P,
    (_U, ReturnedStarting): _B,
    (_U, ReturnedRunning): _R,
    (_U, ReturnedPausing): _X,
    (_U, ReturnedSuspended): _Z,
    # checkpoints may be announced late
    **{(state, Committed): state for state in (_A, _P, _B, _R, _Z, _X, _U)},
    # the scheduler, where a job is resized while it runs; then the agents' reports
    (_R, ResizeBegun): _R,
    **{(state, LeaveAsked): state for state in (_R, _U)},
    **{(state, ResizeSettled): state for state in (_R, _U)},
    # the scheduler or a person; then the agents' reports; then the master, or a person
    (_R, SuspendAsked): _Z,
    (_Z, Suspended): _Z,
    (_Z, SuspendRefused): _R,
    (_Z, ResumeAsked): _Z,
    (_Z, Unsuspended): _R,
    **{(state, WantedBack): state for state in (_Z, _U)},
    # the end, once every rank is confirmed gone (or fenced)
    **{(state, Succeeded): _S.SUCCEEDED for state in (_A, _P, _B, _R, _Z, _X, _U)},
    **{(state, Measured): _S.SUCCEEDED for state in (_R, _X, _U)},
    **{(state, Failed): _S.FAILED for state in (_A, _P, _B, _R, _Z, _X, _U)},
    **{(state, StartFailed): _S.START_FAILED for state in (_A, _P, _B, _X, _U)},
    **{(state, NodeLost): _S.NODE_LOST for state in (_A, _P, _B, _R, _Z, _X, _U)},
    # only after a StopRequested, which UNKNOWN remembers
    **{(state, Preempted): _S.PREEMPTED for state in (_X, _U)},
    **{(state, PreemptedLost): _S.PREEMPTED_LOST for state in (_X, _U)},
    **{(state, Cancelled): _S.CANCELLED for state in (_X, _U)},
    **{(state, TimedOut): _S.TIMED_OUT for state in (_X, _U)},
}

# A later cause takes the place of an earlier one only if it is more final.
_WEIGHT: Mapping[StopCause, int] = {
    StopCause.PREEMPT: 0,
    StopCause.DRAIN: 0,
    StopCause.RECLAIM: 0,
    StopCause.REQUEUE: 0,
    StopCause.PAUSE: 1,
    StopCause.HOLD_EXPIRED: 1,
    StopCause.TRIAL: 1,
    StopCause.FENCE: 1,
    StopCause.GANG_FAILURE: 2,
    StopCause.TIME_LIMIT: 3,
    StopCause.CANCEL: 4,
}


_changed = changer(Attempt)
_COMPLETED = EndReason.COMPLETED  # looked up once: it costs as much as two fields of a copy
_OF_THE_LEASE = (Renewed, ResizeBegun, LeaveAsked, ResizeSettled)
_OF_A_SUSPENSION = (SuspendAsked, Suspended, SuspendRefused, ResumeAsked, Unsuspended, WantedBack)


def step(attempt: Attempt, event: AttemptEvent, *, at_s: float) -> Attempt:
    """The attempt after `event` at `at_s`; raises IllegalTransition where the table has no row.

    Nothing else has to follow: an attempt holds its GPUs exactly as long as it is live.
    """
    target = TABLE.get((attempt.state, type(event)))
    if target is None:
        raise IllegalStep("attempt", str(attempt.key), attempt.state, event)
    if isinstance(event, _OF_THE_LEASE):
        if isinstance(event, Renewed):
            return renewed(attempt, event)
        return _resized(attempt, event, at_s)._replace(state=target)
    if isinstance(event, _OF_A_SUSPENSION):
        return _moved(attempt, event, at_s)._replace(state=target)
    changes = _changes(attempt, event, at_s)
    changes["state"] = target
    return _changed(attempt, changes)


def _changes(  # noqa: C901 one case per event
    attempt: Attempt, event: AttemptEvent, at_s: float
) -> Changes:
    match event:
        case Succeeded():
            return _ended(_COMPLETED, at_s, 0)
        case Running():
            return {"started_time_s": at_s}
        case StopRequested():
            return _stopped(attempt, event, at_s)
        case Committed():
            return {"checkpoint": event.checkpoint}
        case Measured():
            return _ended(EndReason.PROFILED, at_s)
        case Failed():
            return _ended(event.reason, at_s, event.exit_code, event.signal)
        case Preempted():
            return _ended(EndReason.PREEMPTED, at_s, event.exit_code)
        case PreemptedLost():
            return _ended(EndReason.PREEMPTED_LOST, at_s, event.exit_code)
        case Cancelled():
            return _ended(EndReason.CANCELLED, at_s)
        case TimedOut():
            return _ended(EndReason.TIME_LIMIT, at_s)
        case NodeLost():
            return _ended(EndReason.NODE_LOST, at_s)
        case StartFailed():
            return {"stop_detail": event.detail, **_ended(EndReason.START_FAILED, at_s)}
        case NodeSilent():
            return {"known_before_silence": attempt.state}
        case ReturnedRunning() if attempt.started_time_s is None:
            return {"known_before_silence": None, "started_time_s": at_s}
        case (
            ReturnedAssigned()
            | ReturnedPreparing()
            | ReturnedStarting()
            | ReturnedRunning()
            | ReturnedPausing()
            | ReturnedSuspended()
        ):
            return {"known_before_silence": None}
        case Preparing() | Starting():
            return {}
        case Renewed() | ResizeBegun() | LeaveAsked() | ResizeSettled():
            return {}  # `step` replaces the lease
        case (
            SuspendAsked()
            | Suspended()
            | SuspendRefused()
            | ResumeAsked()
            | Unsuspended()
            | WantedBack()
        ):
            return {}  # `step` replaces the suspension
        case _:
            assert_never(event)


_RENEWED_IN = frozenset(state for state, event in TABLE if event is Renewed)


def renewed(attempt: Attempt, event: Renewed) -> Attempt:
    """`step` for the most frequent event, for callers that know that it is this one."""
    if attempt.state not in _RENEWED_IN:
        raise IllegalStep("attempt", str(attempt.key), attempt.state, event)
    return _changed(attempt, {"lease": until(attempt.lease, event.term_end_s, event.kind)})


def sooner(attempt: Attempt, cause: StopCause, grace_s: float) -> StopRequested:
    """The attempt is to be gone in this time; the consequence for its job stays as it was."""
    return StopRequested(
        cause=cause,
        grace_s=grace_s,
        detail=attempt.stop_detail,
        regrant=attempt.regrant,
        measured_s=attempt.measured_s,
        unmeasured=attempt.unmeasured,
    )


def _resized(
    attempt: Attempt, event: ResizeBegun | LeaveAsked | ResizeSettled, at_s: float
) -> Attempt:
    """The attempt begins a new stretch on other GPUs; its job's books hold the one before."""
    known, width = attempt.resize, attempt.lease.allocation.width
    after = attempt
    match event:
        case ResizeBegun():
            known = LiveResize(width, at_s, at_s, event.grace_s, event.detail)
            after = live_resize.begun(attempt, event.allocation)._replace(resize=known)
        case LeaveAsked():
            known = known or LiveResize(width, at_s, at_s, 0.0, event.detail)
            known = known._replace(fault=known.fault or event.detail)
            after = live_resize.told_to_leave(attempt, event.node_ids)._replace(resize=known)
        case ResizeSettled():
            other = known is None or attempt.leaves.width + known.from_gpus != width
            after = live_resize.settled(attempt)
            after = after._replace(resize=None, resizes=attempt.resizes + other)
    if after.lease.allocation is not attempt.lease.allocation and after.started_time_s is not None:
        return after._replace(started_time_s=at_s, resized_time_s=at_s)
    return after


def _moved(
    attempt: Attempt,
    event: SuspendAsked | Suspended | SuspendRefused | ResumeAsked | Unsuspended | WantedBack,
    at_s: float,
) -> Attempt:
    match event:
        case SuspendAsked():
            left = Suspension(
                SuspensionPhase.LEAVING, at_s, attempt.lease.allocation, event.for_job, event.why,
                memory_bytes=event.memory_bytes, until_s=event.until_s, lasts_s=event.lasts_s,
            )  # fmt: skip
            return attempt._replace(suspension=left, moves=attempt.moves + 1)
        case Suspended():
            return suspending.gone_out(attempt, at_s)
        case SuspendRefused():
            return suspending.refused(attempt)
        case ResumeAsked():
            return suspending.coming(
                attempt, event.term_end_s, at_s, event.allocation, to_save=event.to_save
            )
        case Unsuspended():
            return attempt._replace(suspension=None)
        case WantedBack():
            return suspending.wanted_back(attempt)


def _stopped(attempt: Attempt, event: StopRequested, at_s: float) -> Changes:
    before = attempt.stop_cause
    if before is not None and _WEIGHT[event.cause] < _WEIGHT[before]:
        return {}
    return {
        "stop_cause": event.cause,
        "stop_detail": event.detail,
        "grace_s": event.grace_s,
        "regrant": event.regrant,
        "measured_s": event.measured_s,
        "unmeasured": event.unmeasured,
        "notice_time_s": at_s if attempt.notice_time_s is None else attempt.notice_time_s,
    }


def _ended(
    reason: EndReason, at_s: float, exit_code: int | None = None, signal: int | None = None
) -> Changes:
    return {
        "ended_time_s": at_s,
        "end_reason": reason,
        "exit_code": exit_code,
        "signal": signal,
        "known_before_silence": None,
    }
