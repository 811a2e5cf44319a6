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


# States that hold GPUs and are neither stopping, suspended nor silent: a plan may renew them or let
# them lapse.
ACTIVE = LIVE - {AttemptState.SUSPENDED, AttemptState.PAUSING, AttemptState.UNKNOWN}


class RankPhase(StrEnum):
    """The report of a node's agent about its rank."""

    ASSIGNED = "assigned"
    PREPARING = "preparing"
    STARTING = "starting"  # ready, at the barrier or past it
    RUNNING = "running"
    EXITED = "exited"  # confirmed gone: cgroup empty, GPUs released or withheld on its node


class RankMove(NamedTuple):
    """The answer of a rank to the last order to leave its GPUs without a save, or to come back."""

    number: int  # of the order
    state: str  # "moving", "suspended", "running", "stranded"
    memory_bytes: int = 0  # of its GPU memory, in the memory of its host
    took_s: float = 0.0
    failure: str = ""  # why the order was not carried out
    remaps: bool = False  # it stands still, and may come back to other GPUs of the type
    own_only: str = ""  # why it may not


class RankStatus(NamedTuple):
    """The last report of one rank (one per node of the gang)."""

    node_id: NodeId
    phase: RankPhase = RankPhase.ASSIGNED
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    start_error: str = ""  # not empty: it never ran
    start_cause: str = ""  # why, in a fixed word (dlq_common/start_causes.py); empty: not said
    nowhere: bool = False  # No node could start it: its spec has a mistake.
    no_room: bool = False  # because a disk of its node was full
    words: str = ""  # what its node says of its end, if the code alone does not tell
    exited_time_s: float | None = None
    done_file: bool = False  # the program left DLQ_DONE_FILE
    saved: bool = False  # a checkpoint was committed after this rank's notice
    hold_expired: bool = False  # the shim ended it, or told it to: the master was silent too long
    noticed: bool | None = None  # told to leave before its end, by its shim; None: not known
    catches: bool | None = None  # its main process, the signal of its notice; None: not known
    lost: bool = False  # nobody will ever say how it ended
    given_up: bool = False  # lost by an operator's word, or by a restored backup: no failure
    ready_time_s: float | None = None  # since when it could start
    ports: tuple[int, ...] = ()  # of its node, found free when it was ready
    workers_done: bool = False  # what still runs there serves the workers of other nodes
    failed_task: str = ""  # of several on its node: the one that failed first
    last_lines: tuple[str, ...] = ()  # the end of its output, if it failed
    gpu_oom: bool = False  # they say that a GPU had too little memory
    peer_lost: bool = False  # they say that another rank has gone away
    image_digest: str = ""  # which image its name stood for on its node
    joining: bool = False  # launched while the others run, and not heard to run yet
    leaving: bool = False  # told to leave while the others go on
    joined_time_s: float | None = None  # of one that came while the others ran
    unfit: bool = False  # it was to join, and failed by itself
    move: RankMove | None = None  # None: it has never been suspended

    @property
    def joined(self) -> bool:
        return self.joined_time_s is not None

    @property
    def left(self) -> bool:
        """It has gone, and the others go on: how it ended says nothing of the attempt."""
        return self.leaving and self.phase is RankPhase.EXITED

    @property
    def gone(self) -> bool:
        """Confirmed: nothing of it runs, and its GPUs are free or withheld on its node."""
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
    """The steps of an attempt, as its node told them last: kept beside the state, and never planned
    by. Its message has ages and no instants: they count from `told_s`.

    All of it is the job's own word. The list is kept as the message in which it came: it may be
    long, it comes often, and it is rarely read. Only the rpc room looks into it.
    """

    key: AttemptKey
    told_s: float
    content: bytes


class LiveResize(NamedTuple):
    """Ranks come or go while the others run on (model/attempts/live_resize.py): from so many GPUs,
    since an instant, and why. Leaving ranks are given notice at `due_s`.
    """

    from_gpus: int
    since_s: float
    due_s: float
    grace_s: float
    why: str = ""
    fault: str = ""  # who was to join and does not, and why


class SuspensionPhase(StrEnum):
    """Where a suspended attempt stands."""

    LEAVING = "leaving"  # its ranks were told to leave; its GPUs are still its own
    OUT = "out"  # its GPUs are others' to have
    COMING = "coming"  # its GPUs are its own again, and its ranks come back


class Suspension(NamedTuple):
    """An attempt is off its GPUs without a save (model/attempts/suspending.py), or moves."""

    phase: SuspensionPhase
    since_s: float  # when it was told to leave
    allocation: Allocation  # its GPUs, to which it comes back
    for_job: JobId | None = None  # for whom it left; None: a person's wish
    why: str = ""
    wanted_back: bool = False  # a person wants it back; not needed where it left for a job
    out_s: float | None = None  # when its GPUs were free
    memory_bytes: int = 0  # of GPU memory in the memory of its hosts
    to_save: bool = False  # it comes back only to save and leave
    until_s: float | None = None  # its GPUs are promised: it is off them by then, or ended
    lasts_s: float | None = None  # by a person: so long off its GPUs; then it saves

    @property
    def ends_s(self) -> float | None:
        """When it ends at the latest; None: nobody has said, or it is not off its GPUs."""
        asked = self.lasts_s is not None and self.out_s is not None and not self.wanted_back
        return self.out_s + self.lasts_s if asked else None  # type: ignore[operator]  # as asked


class Attempt(NamedTuple):
    """One try. It holds its allocation's GPUs as long as it is live.

    A rank keeps its number for good, and no two have the same. Where none has come or gone since it
    was placed, `ranks` and the slots of its allocation are in one order.
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
    notice_due_s: float | None = None  # of its nodes' notice: a lapse is asked for earlier
    warned_time_s: float | None = None  # of the time limit
    barrier_time_s: float | None = None  # when all ranks of a gang were ready and were let go
    regrant: Allocation | None = None  # it stops only to go on here: kept for its job meanwhile
    measured_s: float | None = None  # a trial: all of the job's work at its pace ...
    unmeasured: Basis | None = None  # ... or why that is not known
    resize: LiveResize | None = None  # ranks come or go just now
    resized_time_s: float | None = None  # since when it has these GPUs, if others than at first
    resizes: int = 0  # how often it has gone on with others
    fixed: bool = False  # nobody joins or leaves it: an agent that it began with does not know how
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
        """It runs, and only so that it is known how long its job takes."""
        return self.state is AttemptState.RUNNING and self.lease.kind is LeaseKind.PROFILE

    @property
    def shown_state(self) -> str:
        """The one word for people; a trial that runs has one of its own."""
        return PROFILING if self.profiling else self.state.value

    @property
    def at_barrier(self) -> bool:
        """A gang none of whose ranks may have started: nobody has let them go."""
        return self.waits_for_others and self.barrier_time_s is None and self.started_time_s is None

    @property
    def waits_for_others(self) -> bool:
        """Whether a rank that is ready waits for more than itself."""
        return self.together or len(self.ranks) > 1

    @property
    def is_out(self) -> bool:
        """Whether it is off its GPUs without a save. It keeps its fence and its place."""
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
        """The GPUs that nobody else may have while it lives."""
        held = self.lease.allocation
        return held if self.regrant is None else held | self.regrant

    @property
    def leaves(self) -> Allocation:
        """Those of them that others may have once it has stopped, or its ranks that leave have."""
        held = self.lease.allocation
        if self.resize is not None and self.stop_cause is None:
            going = self.going
            return Allocation(tuple([slot for slot in held.slots if slot.node_id in going]))
        return held if self.regrant is None else held - self.regrant

    @property
    def going(self) -> set[NodeId]:
        """Nodes that its ranks leave, or have left, while the others go on."""
        left = {status.node_id for status in self.ranks if status.leaving}
        return left - {status.node_id for status in self.ranks if not status.leaving}

    @property
    def frees(self) -> bool:
        """Whether those are soon free."""
        if self.state is AttemptState.RUNNING:
            return self.resize is not None
        if self.state is AttemptState.SUSPENDED:
            return self.suspension is not None and self.suspension.phase is SuspensionPhase.LEAVING
        return self.state is AttemptState.PAUSING

    @property
    def held_since_s(self) -> float:
        """When it was given the GPUs that it has."""
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

    def service_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of the reference attained: GPUs x their speed x seconds since RUNNING, saving
        included.
        """
        return self.executed_s(now_s) * self.lease.allocation.width * self.speed

    def paced(self, request: Request) -> float:
        """Seconds of the run time of its job, with this request, that a second does."""
        return request.paced(self.speed) if self.pace is None else self.pace

    def off_gpus_s(self, now_s: float) -> float:
        """Seconds that it was off its GPUs, in the memory of its hosts, until now."""
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
