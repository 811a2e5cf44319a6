"""One try of a job on given GPUs: the stored value."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from dlq_master.model.estimates.estimate import Basis
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs.job import Checkpoint, EndReason
from dlq_master.model.lease import Lease, LeaseKind
from dlq_master.model.resources import Allocation, Request, Slot
from dlq_master.model.transitions import StopCause
from dlq_master.model.values import maker

PROFILING = "profiling"  # shown in the place of RUNNING; no state of the machine


class AttemptState(StrEnum):
    ASSIGNED = "assigned"
    PREPARING = "preparing"  # image, directories
    STARTING = "starting"  # the barrier is open: all ranks are let go
    RUNNING = "running"
    SUSPENDED = "suspended"  # off its GPUs without a save, on the way there, or on the way back
    PAUSING = "pausing"  # told to save and leave
    UNKNOWN = "unknown"  # at least one of its nodes is silent
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    PREEMPTED_LOST = "preempted_lost"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    NODE_LOST = "node_lost"
    START_FAILED = "start_failed"


LIVE = frozenset(
    {
        AttemptState.ASSIGNED,
        AttemptState.PREPARING,
        AttemptState.STARTING,
        AttemptState.RUNNING,
        AttemptState.SUSPENDED,
        AttemptState.PAUSING,
        AttemptState.UNKNOWN,
    }
)


# Live states that a plan may renew or let lapse.
ACTIVE = LIVE - {AttemptState.SUSPENDED, AttemptState.PAUSING, AttemptState.UNKNOWN}


class RankPhase(StrEnum):
    """The phase of a rank, as its agent reports it."""

    ASSIGNED = "assigned"
    PREPARING = "preparing"
    STARTING = "starting"  # ready, at the barrier or past it
    RUNNING = "running"
    EXITED = "exited"  # confirmed gone: cgroup empty, GPUs released or withheld on its node


class RankMove(NamedTuple):
    """The answer of a rank to the last order to be suspended or to come back."""

    number: int  # of the order
    state: str  # "moving", "suspended", "running", "stranded"
    memory_bytes: int = 0  # GPU memory that is in its host's memory
    took_s: float = 0.0
    failure: str = ""  # why the order was not carried out
    remaps: bool = False  # it is suspended, and may come back to other GPUs of the type
    own_only: str = ""  # why it may only come back to its own GPUs


class RankStatus(NamedTuple):
    """The last report of one rank (one per node of the gang)."""

    node_id: NodeId
    phase: RankPhase = RankPhase.ASSIGNED
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    start_error: str = ""  # not empty: it never ran
    start_cause: str = ""  # the cause, a word of dlq_common/start_causes.py; "": unknown
    nowhere: bool = False  # no node could start it: its spec has a mistake
    no_room: bool = False  # because a disk of its node was full
    words: str = ""  # a note of its node on its end
    exited_time_s: float | None = None
    done_file: bool = False  # the program left DLQ_DONE_FILE
    saved: bool = False  # a checkpoint was committed after this rank's notice
    hold_expired: bool = False  # the shim ended it, since its hold was over
    noticed: bool | None = None  # whether it had notice before its end; None: unknown
    catches: bool | None = None  # whether its main process handles the notice signal; None: unknown
    lost: bool = False  # its end is unknown for good
    given_up: bool = False  # lost by an operator or by a restored backup: not a failure
    ready_time_s: float | None = None  # when it became ready at the barrier
    ports: tuple[int, ...] = ()  # of its node, found free when it was ready
    workers_done: bool = False  # only servers of other workers still run there
    failed_task: str = ""  # of several on its node: the one that failed first
    last_lines: tuple[str, ...] = ()  # the end of its output, if it failed
    gpu_oom: bool = False  # they say that a GPU had too little memory
    peer_lost: bool = False  # they say that another rank has gone away
    image_digest: str = ""  # which image its name stood for on its node
    joining: bool = False  # launched while the others run, and not running yet
    leaving: bool = False  # told to leave while the others go on
    joined_time_s: float | None = None  # of one that came while the others ran
    unfit: bool = False  # it failed while joining
    move: RankMove | None = None  # None: it has never been suspended

    @property
    def joined(self) -> bool:
        return self.joined_time_s is not None

    @property
    def left(self) -> bool:
        """Whether it left in a live resize: its end does not affect the attempt."""
        return self.leaving and self.phase is RankPhase.EXITED

    @property
    def gone(self) -> bool:
        """Whether its end is confirmed, and its GPUs are free or withheld on its node."""
        return self.phase is RankPhase.EXITED

    @property
    def failed(self) -> bool:
        return (
            self.phase is RankPhase.EXITED
            and not self.leaving
            and bool(
                self.exit_code or self.signal or self.oom_killed or self.start_error or self.lost
            )
        )


class TakenSteps(NamedTuple):
    """The list of Slurm steps of an attempt, as its node sent it last. Plans never use it.

    It is kept as the message in which it came, since it may be long and is rarely read: only `rpc`
    decodes it. Its ages count from `told_s`. The content is the job's and is not trusted.
    """

    key: AttemptKey
    told_s: float
    content: bytes


class LiveResize(NamedTuple):
    """A resize while ranks run on (model/attempts/live_resize.py). Leaving ranks get their notice
    at `due_s`.
    """

    from_gpus: int
    since_s: float
    due_s: float
    grace_s: float
    why: str = ""
    fault: str = ""  # the rank that failed to join, and why


class SuspensionPhase(StrEnum):
    """The phase of a suspension."""

    LEAVING = "leaving"  # its ranks leave their GPUs, which are still its own
    OUT = "out"  # its GPUs may be given to others
    COMING = "coming"  # its GPUs are its own again, and its ranks come back


class Suspension(NamedTuple):
    """An attempt leaves, left, or comes back to its GPUs without a save (suspending.py)."""

    phase: SuspensionPhase
    since_s: float  # when it was told to leave
    allocation: Allocation  # its GPUs, to which it comes back
    for_job: JobId | None = None  # the job that gets its GPUs; None: a user asked for it
    why: str = ""
    wanted_back: bool = False  # a user wants it back (needed without `for_job`)
    out_s: float | None = None  # when its GPUs were free
    memory_bytes: int = 0  # of GPU memory in the memory of its hosts
    to_save: bool = False  # it comes back only to save and leave
    until_s: float | None = None  # its GPUs are promised: it has left them by then, or is ended
    lasts_s: float | None = None  # the length that a user set; then it saves

    @property
    def ends_s(self) -> float | None:
        """When its set length is over; None: there is none, or it is not suspended."""
        asked = self.lasts_s is not None and self.out_s is not None and not self.wanted_back
        return self.out_s + self.lasts_s if asked else None  # type: ignore[operator]  # as asked


class Attempt(NamedTuple):
    """One run of a job. It holds the GPUs of its allocation while it is live.

    A rank keeps its number. Until ranks join or leave, `ranks` and the slots of the allocation are
    in the same order.
    """

    key: AttemptKey
    epoch: int  # of the master that placed it
    lease: Lease
    state: AttemptState
    assigned_time_s: float
    ranks: tuple[RankStatus, ...] = ()
    resume_from: Checkpoint | None = None
    stop_cause: StopCause | None = None
    stop_detail: str = ""  # for whom or by whom
    notice_time_s: float | None = None
    grace_s: float | None = None
    started_time_s: float | None = None  # RUNNING since, on the GPUs that it has
    ended_time_s: float | None = None
    end_reason: EndReason | None = None
    exit_code: int | None = None
    signal: int | None = None
    first_failed_rank: int | None = None
    checkpoint: Checkpoint | None = None  # newest one committed by this attempt
    master_port: int | None = None
    known_before_silence: AttemptState | None = None
    notice_due_s: float | None = None  # when its nodes give notice, after a stop was ordered
    warned_time_s: float | None = None  # of the time limit
    barrier_time_s: float | None = None  # when the barrier of its gang opened
    regrant: Allocation | None = None  # kept for the restart of its job after a resize
    measured_s: float | None = None  # a trial: all of the job's work at its pace ...
    unmeasured: Basis | None = None  # ... or why that is not known
    resize: LiveResize | None = None  # the live resize under way
    resized_time_s: float | None = None  # since when it has these GPUs, if others than at first
    resizes: int = 0  # how often it has gone on with others
    fixed: bool = False  # no live resizes: an agent at its start did not support them
    speed: float = 1.0  # of its GPUs when it was placed, relative to the reference (TypeSpeeds)
    # Seconds of its job's run time that a second did then, as measured; None: by that speed.
    pace: float | None = None
    together: bool = False  # of a member of a group: no rank starts before those of all members
    suspension: Suspension | None = None  # it is SUSPENDED, or was when it was told to stop
    moves: int = 0  # orders to its ranks to leave or to come back: the number of the last one
    suspensions: int = 0  # how often it was off its GPUs so
    suspended_s: float = 0.0  # off its GPUs in all those times that are over
    carried_s: float = 0.0  # executed before it has its present GPUs, and in no checkpoint then

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def profiling(self) -> bool:
        """Whether it runs as a trial."""
        return self.state is AttemptState.RUNNING and self.lease.kind is LeaseKind.PROFILE

    @property
    def shown_state(self) -> str:
        """The word for users; a running trial has its own."""
        return PROFILING if self.profiling else self.state.value

    @property
    def at_barrier(self) -> bool:
        """Whether its ranks still wait at the barrier."""
        return self.waits_for_others and self.barrier_time_s is None and self.started_time_s is None

    @property
    def waits_for_others(self) -> bool:
        """Whether its ranks start through a barrier."""
        return self.together or len(self.ranks) > 1

    @property
    def is_out(self) -> bool:
        """Whether it is suspended and its GPUs are free. It keeps its fence and `place`."""
        return self.suspension is not None and self.suspension.phase is SuspensionPhase.OUT

    @property
    def place(self) -> Allocation:
        """Its GPUs, or those to which it comes back."""
        out = self.suspension
        if out is None or out.phase is not SuspensionPhase.OUT:
            return self.lease.allocation
        return out.allocation

    @property
    def claims(self) -> Allocation:
        """The GPUs that no other job may have while it is live."""
        held = self.lease.allocation
        return held if self.regrant is None else held | self.regrant

    @property
    def leaves(self) -> Allocation:
        """The GPUs that it gives up: by its stop, or by ranks that leave in a live resize."""
        held = self.lease.allocation
        if self.resize is not None and self.stop_cause is None:
            going = self.going
            return Allocation(tuple([slot for slot in held.slots if slot.node_id in going]))
        return held if self.regrant is None else held - self.regrant

    @property
    def going(self) -> set[NodeId]:
        """Nodes that its ranks leave in a live resize."""
        left = {status.node_id for status in self.ranks if status.leaving}
        return left - {status.node_id for status in self.ranks if not status.leaving}

    @property
    def frees(self) -> bool:
        """Whether the GPUs of `leaves` are being released."""
        if self.state is AttemptState.RUNNING:
            return self.resize is not None
        if self.state is AttemptState.SUSPENDED:
            return self.suspension is not None and self.suspension.phase is SuspensionPhase.LEAVING
        return self.state is AttemptState.PAUSING

    @property
    def held_since_s(self) -> float:
        """When it got its present GPUs."""
        since_s = self.resized_time_s
        return self.assigned_time_s if since_s is None else since_s

    def slot_of(self, rank: int) -> Slot | None:
        """The GPUs of a rank; None: it has given them back."""
        status = self.ranks[rank]
        if status.left:
            return None
        slots = self.lease.allocation.slots
        return next((slot for slot in slots if slot.node_id == status.node_id), None)

    @property
    def fence(self) -> Fence:
        return self.lease.fence

    def paced(self, request: Request) -> float:
        """Seconds of the job's run time that one second does, for this request."""
        return request.paced(self.speed) if self.pace is None else self.pace

    def off_gpus_s(self, now_s: float) -> float:
        """Seconds that it was suspended, until now."""
        out = self.suspension
        if out is None or out.out_s is None or not self.is_out:
            return self.suspended_s
        return self.suspended_s + max(0.0, now_s - out.out_s)

    def executed_s(self, now_s: float) -> float:
        started_s = self.started_time_s
        if started_s is None or self.is_out:
            return 0.0
        until_s = now_s if self.ended_time_s is None else self.ended_time_s
        return until_s - started_s if until_s > started_s else 0.0


def assigned(
    key: AttemptKey, lease: Lease, now_s: float, resume_from: Checkpoint | None
) -> Attempt:
    """An attempt that holds its GPUs from now on; nobody has said anything about it yet."""
    ranks = tuple([_unheard(slot.node_id) for slot in lease.allocation.slots])
    start = (key, lease.fence.epoch, lease, AttemptState.ASSIGNED, now_s, ranks, resume_from)
    return _attempt(start + _NOTHING_YET)


@lru_cache(maxsize=1 << 14)
def _unheard(node_id: NodeId) -> RankStatus:
    """The rank of a node that has said nothing about it yet: one value for all attempts."""
    return RankStatus(node_id)


_attempt = maker(Attempt)
_NOTHING_YET = tuple(Attempt._field_defaults.values())[2:]  # after its ranks and resume_from
