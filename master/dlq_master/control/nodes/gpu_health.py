"""How nodes say their GPUs are, and what is done about it.

Facts come with heartbeats, the whole of a node at once. A GPU that the table of
model/nodes/gpu_health.py withholds takes no new work. Running jobs go on, for as long as they can.
When the agent restarts, it reports everything again, and the driver's messages of this boot from
the kernel's log. When the master restarts, its verdicts are on disk. While the line is silent
- the last word stands.
"""

from collections.abc import Iterable, Mapping

from dlq_common.errors import InvalidRequest
from dlq_master.control.attempts import idleness, quarantine
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ClearGpuConditions, ToldGpu
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.gpu_health import Action, Figures, GpuCondition, Symptom, judge
from dlq_master.model.nodes.node import Node, NodeFlag


def take(turn: Turn, node_id: NodeId, told: Iterable[ToldGpu]) -> None:
    """All that a node says of its GPUs now."""
    state = turn.state
    told = tuple(told)
    last = state.nodes.gpu_figures.get(node_id, {})
    figures = {one.gpu: _figures(one, last.get(one.gpu)) for one in told}
    state.nodes.note_figures(node_id, figures)
    if state.cluster.nodes[node_id].suspend_bytes:
        known = [one for one in told if one.used_memory_bytes is not None]
        used = {one.gpu: one.used_memory_bytes or 0 for one in known}
        state.cluster.move_costs.used[node_id] = used
    idleness.take(turn, node_id, told)
    node = state.cluster.nodes[node_id]
    conditions = judge(
        node.conditions,
        {one.gpu: _symptoms(one, turn.now_s) for one in told},
        uuids=node.uuids,
        cleared=node.cleared,
        actions=state.nodes.gpu_actions,
    )
    if conditions == node.conditions:
        return
    cause = _changes(node.conditions, conditions)
    actor = f"node:{node_id}"
    before = {(one.gpu, one.code) for one in node.conditions}
    node = turn.step_node(
        node_id, on_node.GpusJudged(conditions=conditions), actor=actor, cause=cause
    )
    grave = [one for one in conditions if one.action is Action.DRAIN]
    if any((one.gpu, one.code) not in before for one in grave):
        _drain(turn, node, "; ".join(map(str, grave)))


def _figures(told: ToldGpu, before: Figures | None) -> Figures:
    """A time that no sample has seen ends what is known of how long it is idle."""
    load, idle_s = told.load, None
    if load is not None:
        whole = load.seen_s >= load.span_s - 1.0
        known_s = 0.0 if before is None else before.idle_s or 0.0
        idle_s = 0.0 if load.peak_percent or not whole else known_s + load.span_s
    return Figures(
        told.temperature_celsius,
        told.utilization_percent,
        told.used_memory_bytes,
        None if load is None else load.mean_percent,
        None if load is None else load.power_watts,
        None if load is None else load.clock_mhz,
        idle_s,
    )


def _as_it_stands(turn: Turn, ask: ClearGpuConditions, _word: str) -> Node:
    return turn.node(ask.node_id)


@once(_as_it_stands)
def clear(turn: Turn, ask: ClearGpuConditions) -> Done[Node]:
    """Use GPUs again that were withheld for what was wrong with them."""
    node = turn.node(ask.node_id)
    missing = sorted(ask.indexes - node.uuids.keys())
    if missing:
        raise InvalidRequest(f"node {ask.node_id} has no GPU {missing[0]}", field="gpu_indexes")
    indexes = ask.indexes or frozenset(node.uuids)
    cause = "; ".join(str(one) for one in node.conditions if one.gpu in indexes)
    event = on_node.GpusCleared(indexes=indexes)
    node = turn.step_node(ask.node_id, event, actor=ask.caller.actor, cause=cause)
    return Done(node, ask.node_id)


def watch_cleaning(turn: Turn) -> None:
    """Once a second: a node that is not clean after its time is left to an operator."""
    limit_s = turn.state.config.health.cleaning_limit
    cluster = turn.state.cluster
    for node in [cluster.nodes[node_id] for node_id in sorted(cluster.capacity.marked)]:
        note = node.note(NodeFlag.CLEANING)
        if note is None or NodeFlag.CORDONED in node.flags:
            continue
        if turn.now_s - note.since_s >= limit_s:
            minutes = round((turn.now_s - note.since_s) / 60)
            reason = f"not clean after {minutes} min: {note.reason}"
            event = on_node.FlagSet(flag=NodeFlag.CORDONED, reason=reason, by=quarantine.BY)
            turn.step_node(node.node_id, event, cause=reason)


def _drain(turn: Turn, node: Node, reason: str) -> None:
    if NodeFlag.DRAINING in node.flags:
        return
    if not quarantine.may_close(turn):
        cause = f"{reason}; enough nodes are closed already"
        turn.note("node_not_drained", node_id=node.node_id, cause=cause)
        return
    event = on_node.FlagSet(flag=NodeFlag.DRAINING, reason=reason, by=quarantine.BY)
    turn.step_node(node.node_id, event, cause=reason)
    turn.move_away(node.node_id, actor=quarantine.BY)


def _symptoms(told: ToldGpu, now_s: float) -> tuple[Symptom, ...]:
    return tuple(Symptom(one.code, now_s - one.age_s, one.detail) for one in told.symptoms)


def _changes(before: tuple[GpuCondition, ...], after: tuple[GpuCondition, ...]) -> str:
    was = _by_code(before)
    now = _by_code(after)
    came = [f"{one}, {one.action.value}" for code, one in now.items() if code not in was]
    went = [f"GPU {index}: {code} is over" for index, code in was if (index, code) not in now]
    return "; ".join(came + went)


def _by_code(conditions: tuple[GpuCondition, ...]) -> Mapping[tuple[int, str], GpuCondition]:
    return {(one.gpu, one.code): one for one in conditions}
