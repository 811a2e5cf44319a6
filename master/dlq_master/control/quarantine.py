"""Nodes on which jobs fail at once, one after the other: closed before they eat the queue.

A node is suspected for jobs that could not start there, or failed by themselves soon after their start.
What speaks against the job and not the node does not count: a name of a user that fails on another
node as well (so a poison job, which fails on three, counts against none of them), and of a user whose
jobs fail on other nodes too, more than one. Programs that end by themselves, all of one user, count
once unless a GPU of theirs is ailing. What was cancelled, preempted or out of memory is no sign.

The master closes no more than a share of the cluster by itself. A node is released by an operator, or
by the jobs that it was closed for when they fail elsewhere. What happens when: the master restarts -
the flag is on disk, counting begins anew; the agents and a silent line have no part in it.
"""

from collections.abc import Iterable

from dlq_master.control.suspicion import Failure, Family, Suspicion, charges, weighed
from dlq_master.control.turn import Turn
from dlq_master.model import attempt_steps as on_attempt
from dlq_master.model import gang
from dlq_master.model import node_steps as on_node
from dlq_master.model.attempt import Attempt
from dlq_master.model.ids import NodeId
from dlq_master.model.job import EndReason, Job
from dlq_master.model.node import NodeFlag, NodeState

BY = "master"
_OWN_FAULTS = (EndReason.USER_ERROR, EndReason.SIGNAL)
_MOST_FAILURES = 1_000  # kept per node; a window holds fewer unless somebody floods it


def take(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent, job: Job) -> None:
    """An attempt has ended like this: does it speak against its node?"""
    rules = turn.state.config.health
    node_id = None if gang.is_reduced(attempt, job) else _blamed(turn, attempt, end)
    if node_id is None or not rules.quarantine_jobs:
        return
    suspicion = turn.state.suspicion
    family = Family(job.user, job.name if job.array is None else f"array {job.array.array_id}")
    here = suspicion.failures.setdefault(node_id, [])
    of_node = _of_node(turn, attempt, end, node_id)
    here.append(Failure(turn.now_s, family, attempt.key, of_node))
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
    """Somebody has looked at the node: what was is forgiven."""
    turn.state.suspicion.failures.pop(node_id, None)
    turn.state.suspicion.charged.pop(node_id, None)
    turn.state.suspicion.capped = False


def _by_rule(flag: NodeFlag) -> bool:
    return flag in (NodeFlag.QUARANTINED, NodeFlag.DRAINING, NodeFlag.CORDONED)


def _blamed(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent) -> NodeId | None:
    """The node that an end may speak against; None: no node."""
    ranks = attempt.ranks
    match end:
        case on_attempt.StartFailed():
            rank = next((rank for rank in ranks if rank.start_error and not rank.no_room), None)
        case on_attempt.NodeLost():
            rank = next((rank for rank in ranks if rank.lost), None)
        case on_attempt.Failed(reason=reason) if reason in _OWN_FAULTS:
            first = attempt.first_failed_rank
            failed = next((rank for rank in ranks if rank.failed), None)
            rank = failed if first is None else ranks[first]
        case _:
            return None
    node = None if rank is None else turn.state.cluster.nodes.get(rank.node_id)
    executed_s = attempt.executed_s(gang.ended_s(attempt, turn.now_s))
    fast = executed_s <= turn.state.config.health.quarantine_fast
    # One that is silent is judged by its silence.
    return node.node_id if node is not None and fast and node.state is NodeState.UP else None


def _of_node(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent, node_id: NodeId) -> bool:
    """Whether it did not start, was lost, or had a GPU there with which something is wrong."""
    if not isinstance(end, on_attempt.Failed):
        return True
    ailing = {one.gpu for one in turn.state.cluster.nodes[node_id].conditions}
    held = attempt.lease.allocation.slots
    return any(slot.node_id == node_id and ailing.intersection(slot.gpu_indices) for slot in held)


def _forget_old(suspicion: Suspicion, before_s: float) -> None:
    for node_id, failures in list(suspicion.failures.items()):
        failures[:] = [failure for failure in failures if failure.time_s >= before_s]
        if not failures:
            del suspicion.failures[node_id]


def _quarantine(turn: Turn, node_id: NodeId, counted: Iterable[Failure]) -> None:
    suspicion = turn.state.suspicion
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
    charged = turn.state.suspicion.charged
    for node_id, failures in list(charged.items()):
        left = tuple(failure for failure in failures if failure.family != family)
        if node_id == failed_on or len(left) == len(failures):
            continue
        charged[node_id] = left
        node = turn.state.cluster.nodes.get(node_id)
        if len(weighed(left)) >= turn.state.config.health.quarantine_jobs or node is None:
            continue
        released(turn, node_id)
        if NodeFlag.QUARANTINED in node.flags:
            cause = f"{family.name} of {family.user} fails on {failed_on} too"
            turn.step_node(node_id, on_node.FlagCleared(flag=NodeFlag.QUARANTINED), cause=cause)
