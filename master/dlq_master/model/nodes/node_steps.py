"""The state machine of a node: events, table, and the function that applies an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from dlq_master.model.lease import Terms
from dlq_master.model.nodes.gpu_health import Cleared, GpuCondition, after_boot
from dlq_master.model.nodes.node import (
    OF_LOANS,
    Doubt,
    FlagNote,
    Gpu,
    Node,
    NodeFlag,
    NodePool,
    NodeState,
)
from dlq_master.model.nodes.windows import Window
from dlq_master.model.resources import mask_of
from dlq_master.model.transitions import IllegalStep


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
    """The hold of its attempts is over, it has booted, or an operator fenced it."""


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
    resizes_live: bool = False
    pool: NodePool = NodePool.TRAINING
    cores: int = 0
    core_memory_bytes: int = 0
    suspend_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSet:
    """An operator or a rule closed it."""

    flag: NodeFlag
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagCleared:
    """This flag is gone. Other flags may still close it."""

    flag: NodeFlag


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An operator replaced its labels by these."""

    labels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusStrayed:
    """Processes of no live attempt run on exactly these GPUs; empty: on none any more."""

    indexes: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusAccepted:
    """An operator accepted the GPUs that it has reported beyond its first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusJudged:
    """These are now all conditions of its GPUs."""

    conditions: tuple[GpuCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusCleared:
    """An operator declared these GPUs healthy."""

    indexes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """These are now all times in which it is reserved."""

    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceAnnounced:
    """Its agent will be away for up to `maintenance_s`: its ranks survive that much more."""

    maintenance_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEnded:
    """The announced time is over, or its agent ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsConfirmed:
    """All its ranks have the last hold extension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """A job of this user makes it a suspected straggler."""

    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtOver:
    """It is no suspected straggler any more."""


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
    | Doubted
    | DoubtOver
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
    # the work times of its ranks; a check
    **{(state, Doubted): state for state in NodeState},
    **{(state, DoubtOver): state for state in NodeState},
}


def step(  # noqa: C901 one case per event
    node: Node, event: NodeEvent, *, at_s: float
) -> Node:
    """The node after `event` at `at_s`; raises IllegalTransition where the table has no row."""
    target = TABLE.get((node.state, type(event)))
    if target is None:
        raise IllegalStep("node", node.node_id, node.state, event)
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
                resizes_live=event.resizes_live,
                pool=event.pool,
                cores=event.cores,
                core_memory_bytes=event.core_memory_bytes,
                suspend_bytes=event.suspend_bytes,
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
            # The earlier notice of its ranks stays possible until its agent has sent them the new
            # one.
            after = node._replace(
                flags=node.flags - {NodeFlag.MAINTENANCE},
                maintenance_s=0.0,
                maintenance_end_s=None,
                hold_revision=node.hold_revision + 1,
            )
        case HoldsConfirmed():
            after = node._replace(hold_extension_s=node.maintenance_s)
        case Doubted():
            after = node._replace(doubt=Doubt(at_s, event.user))
        case DoubtOver():
            after = node._replace(doubt=None)
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


def due_event(state: NodeState, silent_s: float, terms: Terms) -> Missed | Vanished | None:
    """The next step of a node in this state after `silent_s` of silence; None: no step is due."""
    if state is NodeState.UP and silent_s >= terms.ttl_s:
        return Missed()
    if state is NodeState.SUSPECT and silent_s >= terms.unreachable_s:
        return Vanished()
    return None
