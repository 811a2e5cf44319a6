"""Quarantine: a node on which one job after the other fails at once is closed to jobs.

Only failures of the node count. These are jobs that it could not start by its own fault
(dlq_common/start_causes.py). They are also programs that failed soon on a GPU with a reported
hardware fault. Other ends of programs do not count, nor do faults that users can cause. So neither
mistakes nor attacks of two users close a node. A program that also fails on another node does not
count. A user whose jobs fail on other nodes too counts once.

A node may lack a mount, a directory or an image that other nodes have. Users can fake that. So it
counts only for jobs that run well on another node, and once for each user. It does not count while
jobs of another user run well on this node.

The master closes no more than a share of the cluster by itself. A node is released by an operator,
or by the jobs that it was closed for when they fail elsewhere. When the master restarts, the flag
is on disk, and counting begins anew. The agents and a silent line have no part in it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.control.attempts import blame
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.first_failure import on_ailing_gpu
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag, NodeState

BY = "master"
_MOST_FAILURES = 1_000  # kept per node; a window holds fewer unless somebody floods it


class Family(NamedTuple):
    """Jobs of one user with one name, or in one array: they probably fail for the same reason."""

    user: str
    name: str


class Failure(NamedTuple):
    """An attempt that failed by its node: it never started, or ended at once on an ailing GPU."""

    time_s: float
    family: Family
    key: AttemptKey


@dataclass(slots=True)
class Suspicion:
    """The evidence against nodes. Never stored."""

    failures: dict[NodeId, list[Failure]] = field(default_factory=dict)
    lacked: dict[NodeId, list[Failure]] = field(default_factory=dict)  # files that others may have
    ran_well: dict[NodeId, dict[Family, float]] = field(default_factory=dict)  # and when last
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


def charged_for_lacks(
    lacked: Collection[Failure], well: Mapping[NodeId, Collection[Family]], node_id: NodeId
) -> tuple[Failure, ...]:
    """The failures over missing files that count against a node, the latest of each user. `well`
    has the families that run well, or did, by node.
    """
    here = well.get(node_id, ())
    users = {failure.family.user for failure in lacked}
    if any(family.user not in users for family in here):
        return ()
    elsewhere = {family for other, them in well.items() if other != node_id for family in them}
    counted = {it.family.user: it for it in lacked if it.family in elsewhere.difference(here)}
    return tuple(counted.values())


def take(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent, job: Job) -> None:
    """Count the end of an attempt against its node, or for it; quarantine the node if due."""
    rules = turn.state.config.health
    if gang.is_reduced(attempt, job) or not rules.quarantine_jobs:
        return
    suspicion = turn.state.nodes.failures
    family = _family(job)
    if _ran_well(turn, attempt):
        _note_well(suspicion, attempt, family, turn.now_s)
        return
    failure = Failure(turn.now_s, family, attempt.key)
    if (node_id := _blamed(turn, attempt, end)) is not None:
        _charge(turn, suspicion.failures, node_id, failure)
        counted = charges(suspicion, node_id)
    elif (node_id := _open(turn, blame.lacking(attempt))) is not None:
        _charge(turn, suspicion.lacked, node_id, failure)
        counted = _counted_lacks(turn, node_id)
    else:
        return
    if len(counted) >= rules.quarantine_jobs:
        _quarantine(turn, node_id, counted)


def _family(job: Job) -> Family:
    return Family(job.user, job.name if job.array is None else f"array {job.array.array_id}")


def _counted_lacks(turn: Turn, node_id: NodeId) -> tuple[Failure, ...]:
    """All attempts are looked at only once enough users have failed there."""
    lacked = turn.state.nodes.failures.lacked[node_id]
    if len({it.family.user for it in lacked}) < turn.state.config.health.quarantine_jobs:
        return ()
    well = _well(turn, turn.state.cluster.attempts.values(), turn.state.nodes.failures.ran_well)
    return charged_for_lacks(lacked, well, node_id)


def _others_run_well(turn: Turn, node_id: NodeId, attempt: Attempt) -> bool:
    cluster, ended = turn.state.cluster, turn.state.nodes.failures.ran_well
    living = [cluster.attempts[key] for key in cluster.attempts_on(node_id)]
    here = _well(turn, living, {node_id: ended.get(node_id, ())}).get(node_id, set())
    own = turn.job(attempt.key.job_id).user
    return any(family.user != own for family in here)


def _well(
    turn: Turn, living: Iterable[Attempt], ended: Mapping[NodeId, Collection[Family]]
) -> dict[NodeId, set[Family]]:
    """By node the families that run well there, or did within the window."""
    found = {node_id: set(families) for node_id, families in ended.items()}
    for attempt in living:
        if _ran_well(turn, attempt):
            family = _family(turn.job(attempt.key.job_id))
            for status in attempt.ranks:
                found.setdefault(status.node_id, set()).add(family)
    return found


def _ran_well(turn: Turn, attempt: Attempt) -> bool:
    """Whether it ran for longer than a mistake takes to show."""
    executed_s = attempt.executed_s(gang.ended_s(attempt, turn.now_s))
    return executed_s > turn.state.config.health.quarantine_fast


def _note_well(suspicion: Suspicion, attempt: Attempt, family: Family, now_s: float) -> None:
    for status in attempt.ranks:
        known = suspicion.ran_well.setdefault(status.node_id, {})
        known.pop(family, None)
        known[family] = now_s
        if len(known) > _MOST_FAILURES:
            del known[next(iter(known))]


def _charge(
    turn: Turn, against: dict[NodeId, list[Failure]], node_id: NodeId, failure: Failure
) -> None:
    suspicion = turn.state.nodes.failures
    here = against.setdefault(node_id, [])
    here.append(failure)
    del here[:-_MOST_FAILURES]
    _forget_old(suspicion, turn.now_s - turn.state.config.health.quarantine_window)
    _exonerate(turn, failure.family, node_id)


def may_close(turn: Turn) -> bool:
    """Whether the master may close one more node by itself: a share of them, and never the last."""
    nodes = turn.state.cluster.nodes.values()
    ours = sum(any(note.by == BY and _by_rule(note.flag) for note in it.notes) for it in nodes)
    share = int(len(nodes) * turn.state.config.health.closed_share)
    left = sum(it.open for it in nodes)
    return ours < max(1, share) and left > 1


def close(turn: Turn, node_id: NodeId, reason: str) -> bool:
    """Whether the node is quarantined now for this; not if it was closed, or enough nodes are."""
    suspicion = turn.state.nodes.failures
    if turn.state.cluster.nodes[node_id].closed:
        return False
    if not may_close(turn):
        if not suspicion.capped:
            suspicion.capped = True
            cause = f"{reason}; enough nodes are closed already"
            turn.note("node_not_quarantined", node_id=node_id, cause=cause)
        return False
    event = on_node.FlagSet(flag=NodeFlag.QUARANTINED, reason=reason, by=BY)
    turn.step_node(node_id, event, cause=reason)
    return True


def reopen(turn: Turn, node_id: NodeId, cause: str) -> None:
    """End the quarantine of a node that turns out to be sound."""
    released(turn, node_id)
    if NodeFlag.QUARANTINED in turn.state.cluster.nodes[node_id].flags:
        turn.step_node(node_id, on_node.FlagCleared(flag=NodeFlag.QUARANTINED), cause=cause)


def released(turn: Turn, node_id: NodeId) -> None:
    """An operator has looked at the node: the past is forgiven."""
    turn.state.nodes.failures.failures.pop(node_id, None)
    turn.state.nodes.failures.lacked.pop(node_id, None)
    turn.state.nodes.failures.charged.pop(node_id, None)
    turn.state.nodes.failures.capped = False


def _by_rule(flag: NodeFlag) -> bool:
    return flag in (NodeFlag.QUARANTINED, NodeFlag.DRAINING, NodeFlag.CORDONED)


def _blamed(turn: Turn, attempt: Attempt, end: on_attempt.AttemptEvent) -> NodeId | None:
    """The node that an end speaks against; None: no node."""
    match end:
        case on_attempt.StartFailed():
            node_id = blame.of_start(attempt)
        case on_attempt.Failed(reason=reason) if reason in gang.OWN_FAULTS:
            executed_s = attempt.executed_s(gang.ended_s(attempt, turn.now_s))
            fast = executed_s <= turn.state.config.health.quarantine_fast
            node_id = on_ailing_gpu(attempt, turn.state.cluster.nodes) if fast else None
            if node_id is not None and _others_run_well(turn, node_id, attempt):
                return None
        case _:
            return None
    return _open(turn, node_id)


def _open(turn: Turn, node_id: NodeId | None) -> NodeId | None:
    """The node, unless it is silent: such a one is judged by its silence."""
    node = None if node_id is None else turn.state.cluster.nodes.get(node_id)
    return node.node_id if node is not None and node.state is NodeState.UP else None


def _forget_old(suspicion: Suspicion, before_s: float) -> None:
    for against in (suspicion.failures, suspicion.lacked):
        for node_id, failures in list(against.items()):
            failures[:] = [failure for failure in failures if failure.time_s >= before_s]
            if not failures:
                del against[node_id]
    for node_id, families in list(suspicion.ran_well.items()):
        recent = {family: at_s for family, at_s in families.items() if at_s >= before_s}
        suspicion.ran_well[node_id] = recent


def _quarantine(turn: Turn, node_id: NodeId, counted: Iterable[Failure]) -> None:
    counted = sorted(counted)
    keys = ", ".join(str(failure.key) for failure in counted)
    if close(turn, node_id, f"{len(counted)} different jobs failed here at once: {keys}"):
        turn.state.nodes.failures.charged[node_id] = tuple(counted)


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
        reopen(turn, node_id, f"{family.name} of {family.user} fails on {failed_on} too")
