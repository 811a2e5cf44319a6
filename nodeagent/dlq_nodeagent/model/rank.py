"""One rank of an attempt on its node: states, events, one table, one step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, assert_never

from dlq_nodeagent.model.messages import Launch, Stop
from dlq_nodeagent.model.port import ExitRecord

# Causes that aim at a checkpoint. They wait for a job that has not begun to train yet, because a
# signal in a launcher's first seconds kills it raw. The others want it gone.
RECLAIM = "reclaim"
SAVING_CAUSES = frozenset({"preempt", "pause", "requeue", "time_limit", "drain", RECLAIM, "resize"})


class RankState(StrEnum):
    """The state of a rank. Its phase on the wire follows from this (report.py)."""

    PREPARING = "preparing"  # taken and journaled; directories are being made
    LAUNCHING = "launching"  # handed to the runtime; the main process is not exec'ed yet
    RUNNING = "running"
    SUSPENDING = "suspending"  # its GPU memory goes to the host's memory
    SUSPENDED = "suspended"  # it stands still, and its GPUs are free
    RESUMING = "resuming"  # it comes back to its GPUs
    STOP_WAITING = "stop_waiting"  # to be stopped: delay, start-up grace, or a look at checkpoints
    STOPPING = "stopping"  # noticed, or killed; the runtime enforces the end
    RELEASING = "releasing"  # ended; not yet proven that its GPUs are free
    ENDED = "ended"  # and its GPUs are free: the master must hear of it, and has not confirmed it
    KEPT = "kept"  # confirmed; log and facts stay for readers


@dataclass(frozen=True, slots=True)
class Prepared:
    """Directories exist; checkpoints not newer than the floor (file system time) are not this
    attempt's.
    """

    floor_mtime_ns: int
    ports: tuple[int, ...] = ()
    image_digest: str = ""


@dataclass(frozen=True, slots=True)
class LetGo:
    """All ranks of its gang are ready: the launch was repeated without the barrier."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The launch can never start here; `error` is for the user.

    An exit code (mistakes.py) marks the user's own mistake: it counts as the job's end, not as this
    host's failure.
    """

    error: str
    exit_code: int | None = None
    no_room: bool = False
    """A disk of this host is full."""
    cause: str = ""
    """Why, in a fixed word (dlq_common/start_causes.py)."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The runtime has started it."""


@dataclass(frozen=True, slots=True)
class MainStarted:
    """The main process was exec'ed at this boottime."""

    at_s: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The master orders its end."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class OutAsked:
    """The master orders it off its GPUs. An order with a lower number than the last is old."""

    number: int


@dataclass(frozen=True, slots=True)
class BackAsked:
    """The master orders it back to GPUs. `gpu_indexes`: its GPUs from now on; empty: the same."""

    number: int
    gpu_indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UsersFound:
    """Its processes that use CUDA, and their GPU memory; journaled before the first one
    is moved.
    """

    pids: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class WentOut:
    """It is suspended: `nbytes` of GPU memory are in host memory, and its GPUs are free.

    `own_only`: why it may only come back to the same GPUs; empty: to any of the type.
    """

    nbytes: int
    took_s: float
    own_only: str = ""


@dataclass(frozen=True, slots=True)
class StayedIn:
    """It could not be suspended, and runs on. `why`: in words."""

    why: str


@dataclass(frozen=True, slots=True)
class CameBack:
    """It runs on its GPUs again."""

    took_s: float


@dataclass(frozen=True, slots=True)
class Stranded:
    """It can neither stay suspended nor come back: the master must end it. `why`: in words."""

    why: str


@dataclass(frozen=True, slots=True)
class NoticeDue:
    """The notice is due. A checkpoint that is newer than the baseline answers it."""

    baseline_mtime_ns: int


@dataclass(frozen=True, slots=True)
class Exited:
    """All its processes have ended. Its GPU memory may still be in use."""

    record: ExitRecord


@dataclass(frozen=True, slots=True)
class Released:
    """Its GPUs are proven free."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The master has the end on disk."""


RankEvent = (
    Prepared
    | LetGo
    | LaunchFailed
    | HandedOver
    | MainStarted
    | StopAsked
    | OutAsked
    | BackAsked
    | UsersFound
    | WentOut
    | StayedIn
    | CameBack
    | Stranded
    | NoticeDue
    | Exited
    | Released
    | Acknowledged
)

_S = RankState
TABLE: Mapping[tuple[RankState, type[RankEvent]], RankState] = {
    (_S.PREPARING, Prepared): _S.PREPARING,  # the file thread; starts at the next contact
    (_S.PREPARING, LetGo): _S.PREPARING,  # master; prepared again, now with the ports of all nodes
    (_S.PREPARING, LaunchFailed): _S.ENDED,  # the file thread, or the runtime refuses the plan
    (_S.PREPARING, HandedOver): _S.LAUNCHING,  # the supervisor, after `runtime.start`
    (_S.PREPARING, StopAsked): _S.ENDED,  # master; nothing ever ran
    (_S.LAUNCHING, MainStarted): _S.RUNNING,  # the shim's start record
    (_S.LAUNCHING, StopAsked): _S.STOP_WAITING,  # master
    (_S.LAUNCHING, Exited): _S.RELEASING,  # the shim's exit record (also: could not exec)
    (_S.RUNNING, StopAsked): _S.STOP_WAITING,  # master
    (_S.RUNNING, Exited): _S.RELEASING,  # the shim's exit record
    (_S.RUNNING, OutAsked): _S.SUSPENDING,  # master
    (_S.RUNNING, BackAsked): _S.RUNNING,  # master, a repeat, or after a refusal: told again
    (_S.SUSPENDING, OutAsked): _S.SUSPENDING,  # master, a repeat
    (_S.SUSPENDING, BackAsked): _S.SUSPENDING,  # master; it comes back as soon as it has left
    (_S.SUSPENDING, UsersFound): _S.SUSPENDING,  # the errand, which then is ordered again
    (_S.SUSPENDING, WentOut): _S.SUSPENDED,  # the errand
    (_S.SUSPENDING, StayedIn): _S.RUNNING,  # the errand
    (_S.SUSPENDING, Stranded): _S.SUSPENDED,  # the errand; nothing of it can be used again
    (_S.SUSPENDED, OutAsked): _S.SUSPENDED,  # master, a repeat
    (_S.SUSPENDED, BackAsked): _S.RESUMING,  # master
    (_S.SUSPENDED, Stranded): _S.SUSPENDED,  # the supervisor: the host needs the memory
    (_S.RESUMING, BackAsked): _S.RESUMING,  # master, a repeat
    (_S.RESUMING, CameBack): _S.RUNNING,  # the errand
    (_S.RESUMING, Stranded): _S.SUSPENDED,  # the errand
    # after a restart of the agent; the moved processes have been running for long
    (_S.SUSPENDING, MainStarted): _S.SUSPENDING,
    (_S.SUSPENDED, MainStarted): _S.SUSPENDED,
    (_S.RESUMING, MainStarted): _S.RESUMING,
    # master; without its GPUs it can save nothing, so this is a kill
    (_S.SUSPENDING, StopAsked): _S.STOP_WAITING,
    (_S.SUSPENDED, StopAsked): _S.STOP_WAITING,
    (_S.RESUMING, StopAsked): _S.STOP_WAITING,
    (_S.SUSPENDING, Exited): _S.RELEASING,  # the shim's exit record
    (_S.SUSPENDED, Exited): _S.RELEASING,  # the shim's exit record
    (_S.RESUMING, Exited): _S.RELEASING,  # the shim's exit record
    (_S.STOP_WAITING, MainStarted): _S.STOP_WAITING,  # the shim's start record
    (_S.STOP_WAITING, StopAsked): _S.STOP_WAITING,  # master; the sooner end wins
    (_S.STOP_WAITING, NoticeDue): _S.STOPPING,  # the supervisor's timers
    (_S.STOP_WAITING, Exited): _S.RELEASING,  # the shim's exit record
    (_S.STOPPING, MainStarted): _S.STOPPING,  # the shim's start record, late
    (_S.STOPPING, StopAsked): _S.STOPPING,  # master; the sooner end wins
    (_S.STOPPING, Exited): _S.RELEASING,  # the shim's exit record
    (_S.RELEASING, StopAsked): _S.RELEASING,  # master, too late
    (_S.RELEASING, Released): _S.ENDED,  # the file thread's look at the GPUs
    (_S.ENDED, StopAsked): _S.ENDED,  # master without the news: told again
    (_S.ENDED, Acknowledged): _S.KEPT,  # master
    (_S.KEPT, StopAsked): _S.KEPT,  # master, a late repeat: told again
}

MOVING = frozenset({_S.SUSPENDING, _S.RESUMING})
SUSPENSION = MOVING | {_S.SUSPENDED}
ALIVE = frozenset({_S.LAUNCHING, _S.RUNNING, _S.STOP_WAITING, _S.STOPPING}) | SUSPENSION
OVER = frozenset({_S.ENDED, _S.KEPT})


class Effect(StrEnum):
    """Duties of the supervisor after a step, in the given order."""

    RECORD = "record"  # write the rank to the journal
    TELL = "tell"  # report it to the master, until acknowledged
    GIVE_NOTICE = "give_notice"  # notice file, signal, and the runtime's timed stop
    SHORTEN_STOP = "shorten_stop"  # a stop in progress ends sooner
    KILL = "kill"  # everything, now


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A stop in progress; instants are boottime seconds."""

    cause: str
    grace_s: float
    due_s: float
    """When the notice may be given at the earliest: asked plus delay."""
    noticed_s: float | None = None
    baseline_mtime_ns: int = 0
    catches: bool | None = None
    """Whether the main process caught or ignored the signal of the notice; None: not known."""
    delivered: bool = False
    """Whether the runtime has taken it; from then on it is carried out without the agent."""

    @property
    def end_s(self) -> float:
        """When its remaining processes will be killed, by present knowledge."""
        return (self.due_s if self.noticed_s is None else self.noticed_s) + self.grace_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSuspension:
    """The last order to suspend a rank or to bring it back, and its result."""

    number: int
    """Rises with every order."""
    out: bool
    """Whether it is to be off its GPUs."""
    nbytes: int = 0
    """Of its GPU memory, as long as that lies in the host's memory."""
    pids: tuple[int, ...] = ()
    """Its processes that leave or have left their GPUs: each must come back. Their numbers are the
    host's, and live as long as it."""
    left: bool = False
    """Its GPUs were proven free of it, and no order to come back has come since: others may be
    there."""
    own_only: str = ""
    """Why it may come back to its own GPUs only; empty: to others of the type as well."""
    came_from: tuple[int, ...] = ()
    """The GPUs that it left, while it comes back to others; those are in its launch by then."""
    took_s: float = 0.0
    failure: str = ""
    """Why the order was not carried out, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A committed checkpoint; `mtime_ns` is the file system's time, `committed_s` boottime."""

    path: str
    step: int | None
    mtime_ns: int
    committed_s: float
    evidence: str
    save_s: float | None = None
    """How long the job says that a stop would have taken it; None when it said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """All that the agent knows about one rank; instants are boottime seconds."""

    launch: Launch
    state: RankState = RankState.PREPARING
    accepted_s: float = 0.0
    prepared: bool = False
    floor_mtime_ns: int = 0
    ports: tuple[int, ...] = ()
    """Its own on this node, from when it is first prepared."""
    ready_s: float | None = None
    detail: str = ""
    """The present activity of its preparation, for people."""
    started_s: float | None = None
    beaten: bool = False
    stopping: Stopping | None = None
    suspension: RankSuspension | None = None
    checkpoint: FoundCheckpoint | None = None
    done: bool = False
    record: ExitRecord | None = None
    workers_done: bool = False
    """True if only tasks that serve others are left of it."""
    failed_task: str = ""
    last_lines: tuple[str, ...] = ()
    """The end of its output, if it failed by itself."""
    error: str = ""
    exit_code: int | None = None
    """The exit code of a launch that failed by the user's own mistake."""
    no_room: bool = False
    """True if it could not start because a disk of this host is full."""
    start_cause: str = ""
    """Why it could not start, in a fixed word."""
    image_digest: str = ""
    ended_s: float | None = None
    gpus_held: str = ""
    """For reports only: it has ended, and this is the reason why its GPUs are not proven free."""

    @property
    def off_gpus(self) -> bool:
        """Whether it is proven to use none of its GPUs: others may use them, now or later."""
        return self.suspension is not None and self.suspension.left

    @property
    def gpus_of_its_own(self) -> tuple[int, ...]:
        """GPUs that it may use, or is not proven to have left."""
        return () if self.off_gpus or self.state in OVER else self.launch.gpu_indexes


@dataclass(frozen=True, slots=True)
class RankStep:
    """The rank after an event, and the effects to carry out, in order."""

    rank: Rank
    effects: tuple[Effect, ...] = ()


class IllegalRankEvent(Exception):
    """The table has no row: a bug of ours."""

    def __init__(self, rank: Rank, event: RankEvent) -> None:
        super().__init__(f"rank {rank.launch.key} is {rank.state}: {event!r}")


def accept(launch: Launch, *, now_s: float) -> RankStep:
    """A new rank, to be journaled before the command is acknowledged to the master."""
    return RankStep(Rank(launch=launch, accepted_s=now_s), (Effect.RECORD, Effect.TELL))


def step(  # noqa: C901 one case per event
    rank: Rank, event: RankEvent, *, now_s: float
) -> RankStep:
    """The rank after `event` (`now_s`: boottime). IllegalRankEvent: the table has no row."""
    target = TABLE.get((rank.state, type(event)))
    if target is None:
        raise IllegalRankEvent(rank, event)
    moved = partial(replace, rank, state=target)  # one replacement: a rank has many fields
    match event:
        case Prepared(floor_mtime_ns, ports, image_digest):
            ready = moved(
                prepared=True,
                floor_mtime_ns=floor_mtime_ns,
                ports=ports,
                image_digest=image_digest,
                ready_s=now_s,
            )
            # Preparing again after a crash is harmless. But the floor cannot be found again, and
            # reported ports must not change.
            kept = (Effect.RECORD,) if floor_mtime_ns or ports or image_digest else ()
            return RankStep(ready, (*kept, Effect.TELL) if rank.launch.at_barrier else kept)
        case LetGo(launch):
            return RankStep(moved(launch=launch, prepared=False), (Effect.RECORD,))
        case LaunchFailed(error, exit_code, no_room, cause):
            failed = moved(error=error, exit_code=exit_code, no_room=no_room, start_cause=cause)
            return _ended(failed, now_s)
        case HandedOver():
            return RankStep(moved())
        case MainStarted(at_s):
            return RankStep(moved(started_s=at_s), (Effect.TELL,))
        case StopAsked(stop):
            return _stop_asked(rank, moved(), stop, now_s)
        case (
            OutAsked()
            | BackAsked()
            | UsersFound()
            | WentOut()
            | CameBack()
            | StayedIn()
            | Stranded()
        ):
            return _move_step(rank, moved(), event)
        case NoticeDue(baseline_mtime_ns):
            return _notice(moved(), baseline_mtime_ns, now_s)
        case Exited(record):
            return RankStep(moved(record=record, ended_s=now_s))
        case Released():
            # Recorded before it is reported: a later agent must not take the phase back.
            return RankStep(moved(), (Effect.RECORD, Effect.TELL))
        case Acknowledged():
            return RankStep(moved(), (Effect.RECORD,))
        case _:
            assert_never(event)


def notice_due_s(rank: Rank, *, startup_grace_s: float) -> float:
    """When the notice of a waiting stop is due. It waits a while for a job's first beat."""
    assert rank.stopping is not None
    due_s = rank.stopping.due_s
    if not awaits_beat(rank):
        return due_s
    born_s = rank.accepted_s if rank.started_s is None else rank.started_s
    wanted_s = max(due_s, born_s + startup_grace_s)
    asked = rank.stopping
    return min(wanted_s, due_s + asked.grace_s / 2.0) if asked.cause == RECLAIM else wanted_s


def awaits_beat(rank: Rank) -> bool:
    """Whether the notice waits for the first beat of the job."""
    asked = rank.stopping
    if asked is None or rank.state is not RankState.STOP_WAITING or rank.beaten:
        return False
    return asked.grace_s > 0 and asked.cause in SAVING_CAUSES


def answered_notice(rank: Rank) -> bool:
    """Whether a checkpoint was committed after the notice, which alone proves that it has saved."""
    return (
        rank.stopping is not None
        and rank.stopping.noticed_s is not None
        and rank.checkpoint is not None
        and rank.checkpoint.mtime_ns > rank.stopping.baseline_mtime_ns
    )


def leave_now(rank: Rank, *, now_s: float, term_s: float) -> RankStep:
    """End a rank that has saved and did not leave: `term_s` from now."""
    assert rank.stopping is not None
    asked = replace(rank.stopping, noticed_s=None, due_s=now_s, grace_s=term_s)
    return _sooner(rank, asked, now_s)


def _move_step(
    rank: Rank,
    moved: Rank,
    event: OutAsked | BackAsked | UsersFound | WentOut | CameBack | StayedIn | Stranded,
) -> RankStep:
    match event:
        case OutAsked(number):
            return _move_asked(rank, moved, number, out=True)
        case BackAsked(number, gpu_indexes):
            return _move_asked(rank, moved, number, out=False, onto=gpu_indexes)
        case UsersFound(pids, nbytes):
            assert moved.suspension is not None
            found = replace(moved.suspension, pids=pids, nbytes=nbytes)
            return RankStep(replace(moved, suspension=found), (Effect.RECORD,))
        case WentOut(nbytes, took_s, own_only):
            return _moved(moved, nbytes=nbytes, took_s=took_s, left=True, own_only=own_only)
        case CameBack(took_s):
            return _moved(moved, nbytes=0, took_s=took_s, pids=(), came_from=(), failure="")
        case StayedIn(why):
            return _moved(moved, nbytes=0, pids=(), failure=why)
        case Stranded(why):
            return _moved(moved, failure=why)


def refuses_gpus(rank: Rank, gpu_indexes: tuple[int, ...]) -> bool:
    """Whether it cannot come back to these GPUs.

    Other GPUs than before need a suspended rank, the same number of them, and no reason to keep its
    own.
    """
    if not gpu_indexes or set(gpu_indexes) == set(rank.launch.gpu_indexes):
        return False
    out = rank.suspension
    fits = len(gpu_indexes) == len(rank.launch.gpu_indexes)
    return not (rank.off_gpus and out is not None and not out.own_only and fits)


def _move_asked(
    rank: Rank, moved: Rank, number: int, *, out: bool, onto: tuple[int, ...] = ()
) -> RankStep:
    """Take an order that is newer than the last one; any other order is only answered.

    The last order may have come while the one before it was carried out.
    """
    known = rank.suspension
    waits = known is not None and rank.state is RankState.SUSPENDED and not (known.out or out)
    if known is not None and number <= known.number - waits:
        return RankStep(rank, (Effect.TELL,))
    asked = RankSuspension(number=number, out=out)
    if known is not None and rank.state is not RankState.RUNNING:
        asked = replace(known, number=number, out=out, took_s=0.0, failure="")
    if not out and rank.state is RankState.SUSPENDED:
        asked = replace(asked, left=False, own_only="")
        if onto and set(onto) != set(rank.launch.gpu_indexes):
            # These are its GPUs from now on. A GPU that it keeps stays in its place.
            before = rank.launch.gpu_indexes
            fresh = iter(sorted(set(onto) - set(before)))
            now = tuple(index if index in onto else next(fresh) for index in before)
            asked = replace(asked, came_from=before)
            moved = replace(moved, launch=replace(rank.launch, gpu_indexes=now))
    return RankStep(replace(moved, suspension=asked), (Effect.RECORD, Effect.TELL))


def _moved(rank: Rank, **result: Any) -> RankStep:
    """Store and report the result of a move: a later agent must know where the memory is."""
    assert rank.suspension is not None
    ended = replace(rank.suspension, **result)
    return RankStep(replace(rank, suspension=ended), (Effect.RECORD, Effect.TELL))


def _ended(rank: Rank, now_s: float) -> RankStep:
    return RankStep(replace(rank, ended_s=now_s), (Effect.RECORD, Effect.TELL))


def _stop_asked(rank: Rank, moved: Rank, stop: Stop, now_s: float) -> RankStep:
    asked = Stopping(cause=stop.cause, grace_s=stop.grace_s, due_s=now_s + stop.delay_s)
    match rank.state:
        case RankState.PREPARING:
            return _ended(replace(moved, stopping=asked), now_s)
        case RankState.LAUNCHING | RankState.RUNNING:
            return RankStep(replace(moved, stopping=asked), (Effect.RECORD, Effect.TELL))
        case RankState.SUSPENDING | RankState.SUSPENDED | RankState.RESUMING:
            at_once = replace(asked, grace_s=0.0, due_s=now_s)
            return RankStep(replace(moved, stopping=at_once), (Effect.RECORD, Effect.TELL))
        case RankState.STOP_WAITING | RankState.STOPPING:
            return _sooner(moved, asked, now_s)
        case _:
            return RankStep(moved, (Effect.TELL,))


def _sooner(rank: Rank, asked: Stopping, now_s: float) -> RankStep:
    """Take a further stop only if it ends the rank sooner."""
    assert rank.stopping is not None
    if asked.end_s >= rank.stopping.end_s:
        return RankStep(rank)
    if rank.stopping.noticed_s is None:
        return RankStep(replace(rank, stopping=asked), (Effect.RECORD,))
    # The notice stands; only the end moves.
    shortened = replace(
        rank.stopping,
        cause=asked.cause,
        grace_s=asked.end_s - rank.stopping.noticed_s,
    )
    how = Effect.KILL if asked.end_s <= now_s else Effect.SHORTEN_STOP
    return RankStep(replace(rank, stopping=shortened), (Effect.RECORD, how))


def _notice(rank: Rank, baseline_mtime_ns: int, now_s: float) -> RankStep:
    assert rank.stopping is not None
    noticed = replace(rank.stopping, noticed_s=now_s, baseline_mtime_ns=baseline_mtime_ns)
    # The node was promised to be empty at the end of the grace, unless the agent was away.
    if noticed.cause == RECLAIM:
        left_s = rank.stopping.end_s - now_s
        noticed = replace(noticed, grace_s=max(noticed.grace_s / 2.0, left_s))
    how = Effect.KILL if noticed.grace_s == 0 else Effect.GIVE_NOTICE
    return RankStep(replace(rank, stopping=noticed), (Effect.RECORD, how))
