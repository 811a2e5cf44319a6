"""A host as the master knows it: its GPUs, and the cores that it gives to jobs without GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.gpu_health import Cleared, GpuCondition
from dlq_master.model.nodes.windows import Window
from dlq_master.model.resources import CORE_TYPE, core_mask


class NodeState(StrEnum):
    UP = "up"
    SUSPECT = "suspect"  # no heartbeat for the TTL: nothing new is placed there
    UNREACHABLE = "unreachable"  # its attempts are UNKNOWN
    DOWN = "down"  # its attempts are decided: nothing of ours runs there


class NodePool(StrEnum):
    """The owner of a node."""

    TRAINING = "training"
    INFERENCE = "inference"  # here only while it is lent
    PRICED = "priced"  # rented, and given back


class NodeFlag(StrEnum):
    """Reasons to start no job on a node. (LOANED is none: it opens a node of another owner.)"""

    DRAINING = "draining"
    CORDONED = "cordoned"
    CLEANING = "cleaning"
    QUARANTINED = "quarantined"
    LOANED = "loaned"
    LENDING = "lending"  # to be lent, and not yet proven empty
    RECLAIMED = "reclaimed"  # lent, and asked back
    MAINTENANCE = "maintenance"  # its agent has announced to be away
    RESERVED = "reserved"  # for maintenance: a reservation has begun
    DISK_FULL = "disk_full"  # its agent has too little room for its own state


OF_LOANS = frozenset({NodeFlag.LOANED, NodeFlag.LENDING, NodeFlag.RECLAIMED})
CLOSED = frozenset(NodeFlag) - {NodeFlag.LOANED}
SUSPECTED = frozenset({NodeFlag.QUARANTINED, NodeFlag.CORDONED})  # a check may find out why


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device of a node."""

    index: int
    gpu_type: str
    uuid: str = ""
    memory_bytes: int = 0

    @property
    def word(self) -> str:
        """The part of it that must stay the same: `0:h100-80gb`. A spare part has another uuid."""
        return f"{self.index}:{self.gpu_type}"


class FlagNote(NamedTuple):
    """The author of a flag, the reason, and the time."""

    flag: NodeFlag
    reason: str
    by: str
    since_s: float


class Doubt(NamedTuple):
    """A node is a suspected straggler, by measurements of a job of this user."""

    since_s: float
    user: str


class LastCheck(NamedTuple):
    """The last check of a kind on a node. `passed` None: it had no result."""

    time_s: float
    passed: bool | None


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
    accepted: frozenset[str] = frozenset()  # `Gpu.word`s that may be used; empty: all present ones
    strayed: frozenset[int] = frozenset()  # GPUs with processes of no live attempt
    stray_reason: str = ""
    withheld: int = 0  # bitmask of GPUs that are not given out
    maintenance_s: float = 0.0  # the present hold extension of its ranks
    maintenance_end_s: float | None = None
    hold_extension_s: float = 0.0  # the longest extension that a rank may still have
    hold_revision: int = 0  # the number of the last change of that
    version: int = 1
    notes: tuple[FlagNote, ...] = ()  # on its flags, in the order in which they were set
    conditions: tuple[GpuCondition, ...] = ()  # what is wrong with its GPUs
    cleared: tuple[Cleared, ...] = ()  # GPUs that an operator has taken for healthy, and when
    runtimes: frozenset[str] = frozenset()  # of jobs, besides processes: "podman"
    labels: frozenset[str] = frozenset()  # `K=V`, set by operators, for jobs that ask for them
    pool: NodePool = NodePool.TRAINING
    windows: tuple[Window, ...] = ()  # in which it is reserved, the first to begin first
    resizes_live: bool = False  # its agent knows how ranks join and leave a job that runs
    cores: int = 0  # that it gives to jobs without GPUs; the others are for its GPUs
    core_memory_bytes: int = 0  # that each of these brings to its job
    suspend_bytes: int = 0  # of its memory, for GPU memory of suspended jobs; 0: it suspends none
    doubt: Doubt | None = None  # jobs over several nodes rather get others

    @property
    def doubted(self) -> bool:
        """Whether it is a suspected straggler."""
        return self.doubt is not None

    @property
    def open(self) -> bool:
        """Any job may start here."""
        return self.takes_work and not self.away

    @property
    def takes_work(self) -> bool:
        """The node is up and nobody has closed it. Only jobs for which a machine was rented may
        start on a rented machine, so this alone does not open it to others.
        """
        return self.state is NodeState.UP and not self.flags & CLOSED

    @property
    def may_be_checked(self) -> bool:
        """A check may start here: nothing but a suspicion closes it."""
        up = self.state is NodeState.UP and not self.away
        return up and not self.flags & (CLOSED - SUSPECTED)

    @property
    def closed(self) -> bool:
        """People, rules or its owner keep new work off it, whether it answers or not."""
        return bool(self.flags & CLOSED) or self.away

    @property
    def away(self) -> bool:
        """An inference server that is not lent, or a rented machine: no job of the queue here."""
        if self.pool is NodePool.INFERENCE:
            return NodeFlag.LOANED not in self.flags
        return self.pool is NodePool.PRICED

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
        return {gpu.index: gpu.uuid for gpu in self.gpus}

    def note(self, flag: NodeFlag) -> FlagNote | None:
        """The person that set this flag, why and when; None: not set, or not known."""
        return next((one for one in self.notes if one.flag is flag), None)

    @property
    def gpu_memory_bytes(self) -> int:
        """Of its smallest GPU, as far as it has told; 0: it has not."""
        return min((gpu.memory_bytes for gpu in self.gpus if gpu.memory_bytes), default=0)

    def masks(self) -> dict[str, int]:
        """GPU type -> bitmask of the indices of that type; job cores are of the type CORE_TYPE."""
        masks: dict[str, int] = {}
        for gpu in self.gpus:
            masks[gpu.gpu_type] = masks.get(gpu.gpu_type, 0) | 1 << gpu.index
        if self.cores:
            masks[CORE_TYPE] = core_mask(self.cores)
        return masks


def frozen(
    nodes: Collection[Node],
    now_s: float,
    terms: Terms,
    loop_lag_s: float = 0.0,
    count: int | None = None,
) -> bool:
    """Requeues must wait: so many nodes vanished at once that the fault is likelier ours.

    `count`: of all nodes; None: `nodes` are all. Nodes that are UP may be left out of `nodes`.
    True when more than freeze_fraction of the nodes and at least freeze_nodes became UNREACHABLE
    within freeze_window_s of each other and are still silent. A node counts for freeze_longest_s,
    so the freeze has an end. Also true when our own loop lags. An absence that was announced is no
    fault.
    """
    if loop_lag_s > terms.loop_lag_limit_s:
        return True
    vanished = sorted(
        node.vanished_time_s
        for node in nodes
        if node.state is NodeState.UNREACHABLE
        and node.vanished_time_s is not None
        and now_s - node.vanished_time_s < terms.freeze_longest_s
        and NodeFlag.MAINTENANCE not in node.flags
    )
    needed = max(terms.freeze_nodes, int((count or len(nodes)) * terms.freeze_fraction) + 1)
    pairs = zip(vanished, vanished[needed - 1 :], strict=False)
    return any(last - first <= terms.freeze_window_s for first, last in pairs)
