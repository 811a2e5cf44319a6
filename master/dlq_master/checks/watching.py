"""Once a second: checks make way for jobs that wait, and those that are due begin.

A check takes a whole idle node. It begins only while no job waits, unless its node is quarantined
and takes none anyhow. It is ended at once when a job waits. The pure checks/due.py
names the due checks. A master that starts takes no node for a new one, and knows of no earlier
result. So idle nodes are checked anew, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_master.checks import results, starting, wide
from dlq_master.checks.due import CheckRule, IdleNode, Periods, due
from dlq_master.checks.results import closed_for
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes.state import CheckRoom
from dlq_master.control.placement import execution
from dlq_master.control.stimuli import SubmitJob
from dlq_master.control.stimuli.jobs import CheckOrder
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.model.transitions import StopCause

LOOK_S = 5.0
_log = get_logger("master.checks")


def watch(turn: Turn) -> None:
    """Let jobs have the nodes that are checked; every `LOOK_S` begin the checks that are due."""
    state, checks = turn.state, turn.state.nodes.checks
    if checks.living and state.cluster.waiting.count:
        _make_way(turn)
    if turn.now_s < checks.look_s and not checks.wide:
        return
    checks.look_s = turn.now_s + LOOK_S
    _mark(turn)
    config = state.config.checks
    if state.frozen or execution.pause_of(state, turn.now_s) is not None:
        return
    if checks.wide:
        wide.mark(turn)
    rules = [CheckRule(kind, frozenset(rule.when)) for kind, rule in config.kinds.items()]
    periods = Periods(config.every, config.retry)
    found = list(due(rules, list(_idle(turn)), periods, turn.now_s))
    if checks.wide:
        wide.let_begin(turn, found)
    at_once = len(found) + len(checks.living) if checks.wide else config.at_once
    for one in found[: max(0, at_once - len(checks.living))]:
        try:
            starting.begin(turn, one.kind, one.node_ids, actor=starting.BY, why=one.why)
        except DlqError as refused:
            _log.warning("check_not_begun", check=one.kind, nodes=one.node_ids, why=refused.what)


def room_of(make: Callable[[CheckOrder], SubmitJob]) -> CheckRoom:
    """The functions of this room for the control loop. `make`: the submission of a check."""
    return CheckRoom(starting.check, results.take, watch, make)


# --- helpers, in order of use ---------------------------------------------------------------------


def _make_way(turn: Turn) -> None:
    """End the checks on nodes that the waiting jobs might get."""
    cluster = turn.state.cluster
    for job_id in sorted(turn.state.nodes.checks.living):
        job = cluster.jobs.get(job_id)
        key = None if job is None else job.live_key
        if key is None or cluster.attempts[key].stop_cause is not None:
            continue
        nodes = [cluster.nodes.get(rank.node_id) for rank in cluster.attempts[key].ranks]
        if any(node is not None and node.open for node in nodes):
            turn.step_job(job_id, on_job.Cancelled(), actor=starting.BY, cause="a job waits")
            turn.stop(key, StopCause.CANCEL, grace_s=0.0, actor=starting.BY)


def _mark(turn: Turn) -> None:
    """Notice nodes that have joined, or booted, and nodes whose drain is over."""
    checks, nodes = turn.state.nodes.checks, turn.state.cluster.nodes
    for node in nodes.values():
        marked = checks.marked.setdefault(node.node_id, {})
        if checks.looked and checks.boots.get(node.node_id) != node.boot_id:
            marked["join"] = turn.now_s
        checks.boots[node.node_id] = node.boot_id
        draining = NodeFlag.DRAINING in node.flags
        if node.node_id in checks.drained and not draining:
            marked["undrain"] = turn.now_s
        (checks.drained.add if draining else checks.drained.discard)(node.node_id)
    checks.looked = True
    for kept in (checks.marked, checks.boots, checks.last, checks.partners):
        for gone in kept.keys() - nodes.keys():
            del kept[gone]


def _idle(turn: Turn) -> Iterator[IdleNode]:
    """The nodes that may be checked now."""
    cluster = turn.state.cluster
    for node in cluster.nodes.values():
        if node.may_be_checked and not cluster.attempts_on(node.node_id):
            look = _look(turn, node)
            if look.devices[1] and (look.closed_for or (node.open and not cluster.waiting.count)):
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
    )
