"""Nodes on which jobs fail at once, one after the other: closed before they eat the queue.

A node is suspected for its own failures. These are jobs that it could not start by a fault of its
own (dlq_common/start_causes.py). They are also programs that failed soon after their start on a GPU
with a reported fault of hardware. The end of a user's program, and any fault that users can cause
on any node, is no sign. Two users with mistakes must not close a node, nor two attackers. A program
of a user that fails on another node as well does not count. A user whose jobs fail on other nodes
too counts once.

The master closes no more than a share of the cluster by itself. A node is released by an operator,
or by the jobs that it was closed for when they fail elsewhere. When the master restarts, the flag
is on disk, and counting begins anew. The agents and a silent line have no part in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.control.attempts import blame
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag, NodeState

BY = "master"
_MOST_FAILURES = 1_000  # kept per node; a window holds fewer unless somebody floods it


class Family(NamedTuple):
    """Jobs that are likely to fail for the same reason: of one user, with one name or in one
    array.
    """

    user: str
    name: str


class Failure(NamedTuple):
    """An attempt that its node failed: it never started, or ended at once on a GPU that ails."""

    time_s: float
    family: Family
    key: AttemptKey


@dataclass(slots=True)
class Suspicion:
    """The evidence against nodes. Never stored."""

    failures: dict[NodeId, list[Failure]] = field(default_factory=dict)
    charged: dict[NodeId, tuple[Failure, ...]] = field(default_factory=dict)  # closed for these
    capped: bool = False  # a node stayed open because enough are closed; told once


def charges(suspicion: Suspicion, node_id: NodeId) -> tuple[Failure, ...]:
    """The failures that count against a node, the latest of each family."""
    elsewhere = {
        failure.family
        for other, failures in suspicion.failures.items()
        if other != node_id
        for failure in failures
    }
    troubled = {family.user for family in elsewhere}
    counted: dict[Family | str, Failure] = {}
    for failure in suspicion.failures.get(node_id, ()):
        if failure.family not in elsewhere:
            user = failure.family.user
            counted[user if user in troubled else failure.family] = failure
    return tuple(counted.values())


def take(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent, job: Job) -> None:
    """An attempt has ended like this: does it speak against its node?"""
    rules = turn.state.config.health
    node_id = None if gang.is_reduced(attempt, job) else _blamed(turn, attempt, end)
    if node_id is None or not rules.quarantine_jobs:
        return
    suspicion = turn.state.nodes.failures
    family = Family(job.user, job.name if job.array is None else f"array {job.array.array_id}")
    here = suspicion.failures.setdefault(node_id, [])
    here.append(Failure(turn.now_s, family, attempt.key))
    del here[:-_MOST_FAILURES]
    _forget_old(suspicion, turn.now_s - rules.quarantine_window)
    _exonerate(turn, family, node_id)
    counted = charges(suspicion, node_id)
    if len(counted) >= rules.quarantine_jobs:
        _quarantine(turn, node_id, counted)


def may_close(turn: Turn) -> bool:
    """Whether the master may close one more node by itself: a share of them, and never the last."""
    nodes = turn.state.cluster.nodes.values()
    ours = sum(any(note.by == BY and _by_rule(note.flag) for note in it.notes) for it in nodes)
    share = int(len(nodes) * turn.state.config.health.closed_share)
    left = sum(it.open for it in nodes)
    return ours < max(1, share) and left > 1


def released(turn: Turn, node_id: NodeId) -> None:
    """An operator has looked at the node: the past is forgiven."""
    turn.state.nodes.failures.failures.pop(node_id, None)
    turn.state.nodes.failures.charged.pop(node_id, None)
    turn.state.nodes.failures.capped = False


def _by_rule(flag: NodeFlag) -> bool:
    return flag in (NodeFlag.QUARANTINED, NodeFlag.DRAINING, NodeFlag.CORDONED)


def _blamed(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent) -> NodeId | None:
    """The node that an end speaks against; None: no node."""
    match end:
        case on_attempt.StartFailed():
            node_id = blame.of_start(attempt)
        case on_attempt.Failed(reason=reason) if reason in blame.OWN_FAULTS:
            executed_s = attempt.executed_s(gang.ended_s(attempt, turn.now_s))
            fast = executed_s <= turn.state.config.health.quarantine_fast
            node_id = blame.of_gpu(attempt, turn.state.cluster.nodes) if fast else None
        case _:
            return None
    node = None if node_id is None else turn.state.cluster.nodes.get(node_id)
    # One that is silent is judged by its silence.
    return node.node_id if node is not None and node.state is NodeState.UP else None


def _forget_old(suspicion: Suspicion, before_s: float) -> None:
    for node_id, failures in list(suspicion.failures.items()):
        failures[:] = [failure for failure in failures if failure.time_s >= before_s]
        if not failures:
            del suspicion.failures[node_id]


def _quarantine(turn: Turn, node_id: NodeId, counted: Iterable[Failure]) -> None:
    suspicion = turn.state.nodes.failures
    node = turn.state.cluster.nodes[node_id]
    if node.closed:
        return
    counted = sorted(counted)
    keys = ", ".join(str(failure.key) for failure in counted)
    reason = f"{len(counted)} different jobs failed here at once: {keys}"
    if not may_close(turn):
        if not suspicion.capped:
            suspicion.capped = True
            cause = f"{reason}; enough nodes are closed already"
            turn.note("node_not_quarantined", node_id=node_id, cause=cause)
        return
    event = on_node.FlagSet(flag=NodeFlag.QUARANTINED, reason=reason, by=BY)
    turn.step_node(node_id, event, cause=reason)
    suspicion.charged[node_id] = tuple(counted)


def _exonerate(turn: Turn, family: Family, failed_on: NodeId) -> None:
    """It fails elsewhere as well: nodes that were closed for it may have been closed wrongly."""
    charged = turn.state.nodes.failures.charged
    for node_id, failures in list(charged.items()):
        left = tuple(failure for failure in failures if failure.family != family)
        if node_id == failed_on or len(left) == len(failures):
            continue
        charged[node_id] = left
        node = turn.state.cluster.nodes.get(node_id)
        if len(left) >= turn.state.config.health.quarantine_jobs or node is None:
            continue
        released(turn, node_id)
        if NodeFlag.QUARANTINED in node.flags:
            cause = f"{family.name} of {family.user} fails on {failed_on} too"
            turn.step_node(node_id, on_node.FlagCleared(flag=NodeFlag.QUARANTINED), cause=cause)
