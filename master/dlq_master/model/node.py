"""A GPU host as the master knows it: the stored value, its events and its table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, assert_never

from dlq_master.model.gpu_health import Cleared, GpuCondition, after_boot
from dlq_master.model.ids import NodeId
from dlq_master.model.lease import Terms
from dlq_master.model.machine import IllegalTransition
from dlq_master.model.resources import mask_of
from dlq_master.model.windows import Window


class NodeState(StrEnum):
    UP = "up"
    SUSPECT = "suspect"  # no heartbeat for the TTL: nothing new is placed there
    UNREACHABLE = "unreachable"  # its attempts are UNKNOWN
    DOWN = "down"  # its attempts are decided: nothing of ours runs there


class NodePool(StrEnum):
    """Whose it is."""

    TRAINING = "training"
    INFERENCE = "inference"  # here only while it is lent
    PRICED = "priced"  # rented, and given back


class NodeFlag(StrEnum):
    """Reasons to place nothing new on a node that is otherwise fine (loaned: whose it is)."""

    DRAINING = "draining"
    CORDONED = "cordoned"
    CLEANING = "cleaning"
    QUARANTINED = "quarantined"
    LOANED = "loaned"
    RENTED = "rented"  # for the moment in which those start for whom it was rented
    LENDING = "lending"  # to be lent, and not yet proven empty
    RECLAIMED = "reclaimed"  # lent, and asked back
    MAINTENANCE = "maintenance"  # its agent has announced to be away
    RESERVED = "reserved"  # for maintenance: a reservation has begun
    DISK_FULL = "disk_full"  # its agent has too little room for its own state


OF_LOANS = frozenset({NodeFlag.LOANED, NodeFlag.LENDING, NodeFlag.RECLAIMED})
CLOSED = frozenset(NodeFlag) - {NodeFlag.LOANED, NodeFlag.RENTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device of a node."""

    index: int
    gpu_type: str
    uuid: str = ""
    memory_bytes: int = 0

    @property
    def word(self) -> str:
        """What of it must stay the same: `0:h100-80gb`. A spare part has another uuid."""
        return f"{self.index}:{self.gpu_type}"


class FlagNote(NamedTuple):
    """Who set a flag, why and when."""

    flag: NodeFlag
    reason: str
    by: str
    since_s: float


class Node(NamedTuple):
    """A registered node. Free GPUs are derived from live attempts, never stored here."""

    node_id: NodeId
    gpus: tuple[Gpu, ...]
    state: NodeState = NodeState.UP
    flags: frozenset[NodeFlag] = frozenset()
    flag_reason: str = ""
    hostname: str = ""
    address: str = ""  # where ranks of other nodes reach this one
    virtual: bool = False  # devices exist on paper only
    boot_id: str = ""
    agent_version: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    root_jobs: bool = False  # its agent runs jobs as root: a development flag, shown everywhere
    registered_time_s: float = 0.0
    last_contact_s: float = 0.0
    vanished_time_s: float | None = None  # when it became UNREACHABLE
    accepted: frozenset[str] = frozenset()  # `Gpu.word`s it may use; empty: those it has
    strayed: frozenset[int] = frozenset()  # GPUs on which something runs for nobody
    stray_reason: str = ""
    withheld: int = 0  # bitmask of the GPUs that take no work although the node may
    maintenance_s: float = 0.0  # how much longer its ranks may hold out just now
    maintenance_end_s: float | None = None
    hold_extension_s: float = 0.0  # the most that a rank may still believe: what reclaiming counts
    hold_revision: int = 0  # names the last word on that
    version: int = 1
    notes: tuple[FlagNote, ...] = ()  # on its flags, in the order in which they were set
    conditions: tuple[GpuCondition, ...] = ()  # what is wrong with its GPUs
    cleared: tuple[Cleared, ...] = ()  # GPUs that an operator has taken for healthy, and when
    runtimes: frozenset[str] = frozenset()  # of jobs, besides processes: "podman"
    labels: frozenset[str] = frozenset()  # `K=V`, set by operators, for jobs that ask for them
    pool: NodePool = NodePool.TRAINING
    windows: tuple[Window, ...] = ()  # in which it is reserved, the first to begin first

    @property
    def open(self) -> bool:
        """New work may be placed here."""
        return self.state is NodeState.UP and not self.closed

    @property
    def closed(self) -> bool:
        """People, rules or its owner keep new work off it, whether it answers or not."""
        return bool(self.flags & CLOSED) or self.away

    @property
    def away(self) -> bool:
        """It is the inference side's, and not lent; or a provider's, where only those start for whom it is rented."""
        if self.pool is NodePool.TRAINING:
            return False
        flag = NodeFlag.LOANED if self.pool is NodePool.INFERENCE else NodeFlag.RENTED
        return flag not in self.flags

    @property
    def unaccepted(self) -> frozenset[int]:
        """GPUs that it shows beyond those it was accepted with."""
        if not self.accepted:
            return frozenset()
        return frozenset(gpu.index for gpu in self.gpus if gpu.word not in self.accepted)

    @property
    def ailing(self) -> frozenset[int]:
        """GPUs that take no work for what is wrong with them."""
        return frozenset(one.gpu for one in self.conditions if one.withholds)

    @property
    def uuids(self) -> dict[int, str]:
        """GPU index -> the card that is there."""
        return {gpu.index: gpu.uuid for gpu in self.gpus}

    def note(self, flag: NodeFlag) -> FlagNote | None:
        """Who set this flag, why and when; None: it is not set, or that is not known."""
        return next((one for one in self.notes if one.flag is flag), None)

    @property
    def gpu_memory_bytes(self) -> int:
        """Of its smallest GPU, as far as it has told; 0: it has not."""
        return min((gpu.memory_bytes for gpu in self.gpus if gpu.memory_bytes), default=0)

    def masks(self) -> dict[str, int]:
        """GPU type -> bitmask of the indices of that type."""
        masks: dict[str, int] = {}
        for gpu in self.gpus:
            masks[gpu.gpu_type] = masks.get(gpu.gpu_type, 0) | 1 << gpu.index
        return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A heartbeat or hello arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """No heartbeat for the TTL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """No heartbeat for unreachable_s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Its attempts' hold ran out, it came back with another boot id, or it was fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Its agent said hello with these facts."""

    gpus: tuple[Gpu, ...]
    boot_id: str
    hostname: str = ""
    address: str = ""
    agent_version: str = ""
    virtual: bool = False
    cpu_count: int = 0
    memory_bytes: int = 0
    root_jobs: bool = False
    runtimes: frozenset[str] = frozenset()
    pool: NodePool = NodePool.TRAINING


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSet:
    """An operator or a rule closed it."""

    flag: NodeFlag
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagCleared:
    """It is open again, as far as this flag goes."""

    flag: NodeFlag


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An operator gave it these labels, all that it has from now on."""

    labels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusStrayed:
    """Something runs on exactly these of its GPUs for nobody; none: that is over."""

    indexes: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusAccepted:
    """An operator takes the GPUs into use that it has shown beyond those it came with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusJudged:
    """This is what is wrong with its GPUs now, all of it."""

    conditions: tuple[GpuCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusCleared:
    """An operator takes these of its GPUs for healthy."""

    indexes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """These are the times in which it is reserved, all of them."""

    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceAnnounced:
    """Its agent will be away for up to `maintenance_s`: its ranks hold out longer by as much."""

    maintenance_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEnded:
    """The time is over, or its agent says that it was away for long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsConfirmed:
    """All its ranks know the last word on their holds; nobody believes an older one."""


NodeEvent = (
    Heard
    | Missed
    | Vanished
    | Lost
    | Registered
    | FlagSet
    | FlagCleared
    | Labelled
    | GpusStrayed
    | GpusAccepted
    | GpusJudged
    | GpusCleared
    | Booked
    | MaintenanceAnnounced
    | MaintenanceEnded
    | HoldsConfirmed
)

_UP, _SUSPECT, _UNREACHABLE, _DOWN = NodeState

TABLE: Mapping[tuple[NodeState, type[NodeEvent]], NodeState] = {
    # the agent speaks
    (_UP, Heard): _UP,
    (_SUSPECT, Heard): _UP,
    (_UNREACHABLE, Heard): _UP,
    **{(state, Registered): _UP for state in NodeState},
    # silence, by the master's clock
    (_UP, Missed): _SUSPECT,
    (_SUSPECT, Vanished): _UNREACHABLE,
    # the hold is over, or somebody made sure; a lost node returns only by registering again
    (_UNREACHABLE, Lost): _DOWN,
    (_SUSPECT, Lost): _DOWN,
    (_UP, Lost): _DOWN,
    # flags and labels never change liveness
    **{(state, FlagSet): state for state in NodeState},
    **{(state, FlagCleared): state for state in NodeState},
    **{(state, Labelled): state for state in NodeState},
    # its agent's reports; an operator
    **{(state, GpusStrayed): state for state in NodeState},
    **{(state, GpusAccepted): state for state in NodeState},
    **{(state, GpusJudged): state for state in NodeState},
    **{(state, GpusCleared): state for state in NodeState},
    **{(state, Booked): state for state in NodeState},
    # its agent, before it goes down and when it is back; the master's clock
    **{(state, MaintenanceAnnounced): state for state in NodeState},
    **{(state, MaintenanceEnded): state for state in NodeState},
    **{(state, HoldsConfirmed): state for state in NodeState},
}


def step(  # noqa: C901 one case per event
    node: Node, event: NodeEvent, *, at_s: float
) -> Node:
    """The node after `event` at `at_s`; raises IllegalTransition where the table has no row."""
    target = TABLE.get((node.state, type(event)))
    if target is None:
        raise IllegalTransition("node", node.node_id, node.state, event)
    match event:
        case Heard():
            after = node._replace(state=target, last_contact_s=at_s, vanished_time_s=None)
        case Missed() | Lost():
            after = node._replace(state=target)
        case Vanished():
            after = node._replace(state=target, vanished_time_s=at_s)
        case Registered():
            after = node._replace(
                state=target,
                gpus=event.gpus,
                accepted=node.accepted or frozenset(gpu.word for gpu in node.gpus),
                boot_id=event.boot_id,
                hostname=event.hostname or node.hostname,
                address=event.address or node.address,
                agent_version=event.agent_version,
                virtual=event.virtual,
                cpu_count=event.cpu_count,
                memory_bytes=event.memory_bytes,
                root_jobs=event.root_jobs,
                runtimes=event.runtimes,
                pool=event.pool,
                last_contact_s=at_s,
                vanished_time_s=None,
            )
        case FlagSet():
            note = FlagNote(event.flag, event.reason, event.by, at_s)
            after = node._replace(
                flags=node.flags | {event.flag},
                flag_reason=event.reason,
                notes=(*_notes_without(node, event.flag), note),
            )
        case FlagCleared():
            left = _notes_without(node, event.flag)
            after = node._replace(
                flags=node.flags - {event.flag},
                flag_reason=left[-1].reason if left else "",
                notes=left,
            )
        case Labelled():
            after = node._replace(labels=event.labels)
        case GpusStrayed():
            after = node._replace(strayed=event.indexes, stray_reason=event.reason)
        case GpusAccepted():
            after = node._replace(accepted=frozenset(gpu.word for gpu in node.gpus))
        case GpusJudged():
            after = node._replace(conditions=event.conditions)
        case GpusCleared():
            known = tuple(one for one in node.cleared if one.gpu not in event.indexes)
            news = tuple(Cleared(index, at_s) for index in sorted(event.indexes))
            kept = tuple(one for one in node.conditions if one.gpu not in event.indexes)
            after = node._replace(conditions=kept, cleared=known + news)
        case Booked():
            after = node._replace(windows=event.windows)
        case MaintenanceAnnounced():
            after = node._replace(
                flags=node.flags | {NodeFlag.MAINTENANCE},
                maintenance_s=event.maintenance_s,
                maintenance_end_s=at_s + event.maintenance_s,
                hold_extension_s=max(node.hold_extension_s, event.maintenance_s),
                hold_revision=node.hold_revision + 1,
            )
        case MaintenanceEnded():
            # What its ranks were told before stays possible until its agent has told them anew.
            after = node._replace(
                flags=node.flags - {NodeFlag.MAINTENANCE},
                maintenance_s=0.0,
                maintenance_end_s=None,
                hold_revision=node.hold_revision + 1,
            )
        case HoldsConfirmed():
            after = node._replace(hold_extension_s=node.maintenance_s)
        case _:
            assert_never(event)
    if isinstance(event, Registered) and event.pool is not NodePool.INFERENCE:
        after = after._replace(flags=after.flags - OF_LOANS)
    if isinstance(event, Registered) and node.boot_id != event.boot_id:
        left_over = after_boot(node.conditions, after.uuids)
        after = after._replace(conditions=left_over, cleared=())
    withheld = mask_of(after.unaccepted | after.strayed | after.ailing)
    return after._replace(version=node.version + 1, withheld=withheld)


def _notes_without(node: Node, flag: NodeFlag) -> tuple[FlagNote, ...]:
    return tuple(note for note in node.notes if note.flag is not flag)


def due_event(node: Node, now_s: float, terms: Terms) -> Missed | Vanished | None:
    """What silence has made of the node, one step at a time; None while it is fine."""
    silent_s = now_s - node.last_contact_s
    if node.state is NodeState.UP and silent_s >= terms.ttl_s:
        return Missed()
    if node.state is NodeState.SUSPECT and silent_s >= terms.unreachable_s:
        return Vanished()
    return None


def frozen(nodes: Collection[Node], now_s: float, terms: Terms, loop_lag_s: float = 0.0) -> bool:
    """Requeues must wait: so many nodes vanished at once that the fault is likelier ours.

    True when more than freeze_fraction of the nodes and at least freeze_nodes became UNREACHABLE
    within freeze_window_s of each other and are still silent, or when our own loop lags. An absence
    that was announced is no fault.
    """
    if loop_lag_s > terms.loop_lag_limit_s:
        return True
    vanished = sorted(
        node.vanished_time_s
        for node in nodes
        if node.state is NodeState.UNREACHABLE
        and node.vanished_time_s is not None
        and NodeFlag.MAINTENANCE not in node.flags
    )
    needed = max(terms.freeze_nodes, int(len(nodes) * terms.freeze_fraction) + 1)
    pairs = zip(vanished, vanished[needed - 1 :], strict=False)
    return any(last - first <= terms.freeze_window_s for first, last in pairs)
