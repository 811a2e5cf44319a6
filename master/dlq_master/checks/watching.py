"""Once a second: checks make way for jobs that could have their nodes, and those due begin.

A check takes a whole idle node. It begins where no job could start now, and is ended once one
could (checks/making_way.py). A quarantined node takes no job anyhow. The pure checks/due.py names
the due checks. One that is overdue goes first: it gets its node before the plan in which that node
has become idle, and makes way for nobody. So each node is checked on a busy cluster too.

A master that starts takes no node for a new one, and knows of no earlier result. So idle nodes are
checked anew, a few at a time, and nothing is overdue yet. A check on a silent node counts among
these few no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_master.checks import making_way, results, starting, suspects, wide
from dlq_master.checks.due import CheckRule, DueCheck, IdleNode, Periods, due, overdue
from dlq_master.checks.results import closed_for
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes.state import CheckRoom
from dlq_master.control.placement import execution
from dlq_master.control.stimuli import SubmitJob
from dlq_master.control.stimuli.jobs import CheckOrder
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState

LOOK_S = 5.0
_log = get_logger("master.checks")


def watch(turn: Turn) -> None:
    """Let jobs have the nodes that are checked; every `LOOK_S` begin the checks that are due."""
    state, checks = turn.state, turn.state.nodes.checks
    looks = turn.now_s >= checks.look_s or bool(checks.wide)
    if not (checks.living or looks):
        return
    # Asking the policy costs a plan: only where a check may have to end, or to stay away.
    jobs_start_on = making_way.wanted(turn) if making_way.may_end(turn) else None
    if jobs_start_on:
        making_way.make_way(turn, jobs_start_on)
    if not looks:
        return
    checks.look_s = turn.now_s + LOOK_S
    _mark(turn)
    suspects.mark(turn)
    checks.overdue = {one.node_ids[0] for one in _overdue(turn, state.cluster.nodes)}
    config = state.config.checks
    if _waits(turn):
        return
    if checks.wide:
        wide.mark(turn)
    found = _due(turn, frozenset() if jobs_start_on is None else jobs_start_on)
    nodes = state.cluster.nodes
    if jobs_start_on is None and any(nodes[one].open for check in found for one in check.node_ids):
        found = _due(turn, making_way.wanted(turn))
    heard = _heard(turn)
    if checks.wide:
        wide.let_begin(turn, found, heard)
    at_once = len(found) + heard if checks.wide else config.at_once
    _begin(turn, found[: max(0, at_once - heard)])


def settle(turn: Turn) -> None:
    """Before a plan: overdue checks get the nodes that are idle now."""
    checks, claims = turn.state.nodes.checks, turn.state.cluster.capacity.claims
    if turn.plan_due and not _waits(turn):
        idle = [node_id for node_id in sorted(checks.overdue) if not claims.get(node_id)]
        checks.first |= _begin(turn, list(_overdue(turn, idle)))


def room_of(make: Callable[[CheckOrder], SubmitJob]) -> CheckRoom:
    """The functions of this room for the control loop. `make`: the submission of a check."""
    return CheckRoom(starting.check, results.take, watch, settle, make)


# --- helpers, in order of use ---------------------------------------------------------------------


def _waits(turn: Turn) -> bool:
    """Whether nothing may start just now."""
    return turn.state.frozen or execution.pause_of(turn.state, turn.now_s) is not None


def _rules(turn: Turn) -> list[CheckRule]:
    kinds = turn.state.config.checks.kinds
    return [CheckRule(kind, frozenset(rule.when)) for kind, rule in kinds.items()]


def _periods(turn: Turn) -> Periods:
    config = turn.state.config.checks
    return Periods(config.every, config.retry, config.overdue)


def _overdue(turn: Turn, node_ids: Iterable[NodeId]) -> Iterator[DueCheck]:
    """The checks of these nodes, idle or busy, that go before jobs."""
    nodes = turn.state.cluster.nodes
    opened = [nodes[node_id] for node_id in node_ids if node_id in nodes and nodes[node_id].open]
    looks = [_look(turn, node) for node in opened]
    able = [look for look in looks if look.devices[1]]
    return overdue(_rules(turn), able, _periods(turn), turn.now_s)


def _due(turn: Turn, jobs_start_on: Set[NodeId]) -> list[DueCheck]:
    """The checks that are due on idle nodes, without those on which jobs are about to start."""
    idle = list(_idle(turn, jobs_start_on))
    return list(due(_rules(turn), idle, _periods(turn), turn.now_s))


def _begin(turn: Turn, found: Sequence[DueCheck]) -> set[JobId]:
    begun = set()
    for one in found:
        try:
            job = starting.begin(turn, one.kind, one.node_ids, actor=starting.BY, why=one.why)
            begun.add(job.job_id)
        except DlqError as refused:
            _log.warning("check_not_begun", check=one.kind, nodes=one.node_ids, why=refused.what)
    return begun


def _heard(turn: Turn) -> int:
    """How many checks run on nodes that answer."""
    cluster = turn.state.cluster
    attempts = [
        cluster.attempts[job.live_key]
        for job_id in turn.state.nodes.checks.living
        if (job := cluster.jobs.get(job_id)) is not None and job.live_key is not None
    ]
    return sum(_answer(turn, [rank.node_id for rank in one.ranks]) for one in attempts)


def _answer(turn: Turn, node_ids: Collection[NodeId]) -> bool:
    nodes = [turn.state.cluster.nodes.get(node_id) for node_id in node_ids]
    return all(node is not None and node.state is NodeState.UP for node in nodes)


def _mark(turn: Turn) -> None:
    """Notice nodes that have joined, or booted, and nodes whose drain is over."""
    checks, nodes = turn.state.nodes.checks, turn.state.cluster.nodes
    for node in nodes.values():
        marked = checks.marked.setdefault(node.node_id, {})
        checks.known.setdefault(node.node_id, turn.now_s)
        if checks.looked and checks.boots.get(node.node_id) != node.boot_id:
            marked["join"] = turn.now_s
        checks.boots[node.node_id] = node.boot_id
        draining = NodeFlag.DRAINING in node.flags
        if node.node_id in checks.drained and not draining:
            marked["undrain"] = turn.now_s
        (checks.drained.add if draining else checks.drained.discard)(node.node_id)
    checks.looked = True
    by_node = (checks.marked, checks.boots, checks.last, checks.partners, checks.known)
    for kept in (*by_node, checks.suspects):
        for gone in kept.keys() - nodes.keys():
            del kept[gone]


def _idle(turn: Turn, jobs_start_on: Set[NodeId]) -> Iterator[IdleNode]:
    """The nodes that may be checked now, without those on which jobs are about to start."""
    cluster = turn.state.cluster
    for node in cluster.nodes.values():
        if node.may_be_checked and not cluster.attempts_on(node.node_id):
            look = _look(turn, node)
            free = node.open and node.node_id not in jobs_start_on
            if look.devices[1] and (look.closed_for or free):
                yield look


def _look(turn: Turn, node: Node) -> IdleNode:
    checks, kinds = turn.state.nodes.checks, frozenset(turn.state.config.checks.kinds)
    note = node.note(NodeFlag.QUARANTINED)
    alone = node.flags & {NodeFlag.QUARANTINED, NodeFlag.CORDONED} == {NodeFlag.QUARANTINED}
    return IdleNode(
        node.node_id,
        starting.usable(turn, node),
        checks.last.get(node.node_id, {}),
        checks.marked.get(node.node_id, {}),
        note.since_s if alone and note is not None else None,
        closed_for(note, kinds) if alone else frozenset(),
        checks.partners.get(node.node_id, frozenset()),
        checks.known.get(node.node_id, turn.now_s),
    )
