"""Servers of the inference side: lent, asked back, and gone, each only when its devices show that
it is empty.

Where a server stands are flags of its node, so that they survive the master: `lending` (to be
lent), `loaned`, `reclaimed` (asked back). Once a second whoever waits for its proof is asked what
is on its GPUs. When an agent restarts, or the line is silent, nothing is proven until it answers.
When the master restarts, the flags are on disk, and all nodes are asked anew.
"""

from collections.abc import Iterable

from dlq_common.errors import IllegalTransition
from dlq_master.control.loans.state import SWITCH, SwitchedOff, written
from dlq_master.control.loop.once import Done, nothing, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines import pools
from dlq_master.control.nodes import emptiness
from dlq_master.control.placement import execution
from dlq_master.control.stimuli.loans import LendServers, SwitchLoans, TakeLook
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import CLOSED, Node, NodeFlag, NodePool, NodeState
from dlq_master.model.plan import Loan, Plan, Return
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.reclaim.tenants import gives_up
from dlq_master.policy.reclaim.whitelist import is_asked_back, is_lent

_LENT = frozenset({NodeFlag.LOANED, NodeFlag.LENDING})
_LENT_AND_ASKED_BACK = frozenset({NodeFlag.LOANED, NodeFlag.RECLAIMED})


def servers(turn: Turn) -> list[Node]:
    """All of the inference side, by name."""
    cluster = turn.state.cluster
    foreign = [cluster.nodes[node_id] for node_id in cluster.own.foreign]
    return [node for node in foreign if node.pool is NodePool.INFERENCE]


def _lent(_turn: Turn, _ask: LendServers, word: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(name) for name in word.split())


@once(_lent)
def lend(turn: Turn, ask: LendServers) -> Done[tuple[NodeId, ...]]:
    """Lend servers as soon as they are proven empty; lent ones stay so."""
    chosen = _named(turn, ask.node_ids) if ask.node_ids else _so_many(turn, ask.count)
    cluster, actor = turn.state.cluster, ask.caller.actor
    for node_id in chosen:
        if is_asked_back(cluster, node_id):
            execution.carry_out(turn, Plan((Loan(node_id, Reason(ReasonCode.LENT)),)), actor)
        elif not is_lent(cluster, node_id) and NodeFlag.LENDING not in cluster.nodes[node_id].flags:
            flag = on_node.FlagSet(flag=NodeFlag.LENDING, reason="to be lent", by=actor)
            turn.step_node(node_id, flag, actor=actor, cause="to be lent")
    watch(turn)
    return Done(chosen, " ".join(chosen))


def watch(turn: Turn) -> None:
    """Once a second: servers that wait for their proof are asked for it."""
    loans, cluster = turn.state.loans, turn.state.cluster
    for node in servers(turn):
        lending = NodeFlag.LENDING in node.flags
        if not node.flags & _LENT and cluster.attempts_on(node.node_id):
            _take_over(turn, node.node_id)
        if not lending and not is_asked_back(cluster, node.node_id):
            loans.forget(node.node_id)
            continue
        _send_away(turn, node.node_id)
        why = emptiness.obstacle(turn, node)
        if why:
            loans.asked.pop(node.node_id, None)
            loans.words[node.node_id] = why
        else:
            emptiness.ask(turn, node.node_id)


def take_look(turn: Turn, told: TakeLook) -> None:
    """A report of a node's devices: a server that it proves empty is lent, or goes back."""
    state = turn.state
    if state.loans.asked.get(told.node_id) != (told.number, told.session_id):
        return  # it was not asked that, or not in this session
    node = state.cluster.nodes[told.node_id]
    del state.loans.asked[told.node_id]
    if emptiness.obstacle(turn, node):
        return
    why = emptiness.in_use(node, told.readings, state.config.loans.free_below)
    if node.pool is NodePool.PRICED:
        pools.looked(turn, told.node_id, why)
        return
    if why:
        if state.loans.words.get(told.node_id) != why:
            cause = f"its devices say: {why}"
            turn.note("server_not_empty", node_id=told.node_id, cause=cause)
        state.loans.words[told.node_id] = why
        return
    state.loans.forget(told.node_id)
    if is_asked_back(state.cluster, told.node_id):
        execution.carry_out(turn, Plan((Return(told.node_id, Reason(ReasonCode.EMPTY)),)), "master")
        turn.note("server_returned", node_id=told.node_id, cause="nothing is on its GPUs")
    elif NodeFlag.LENDING in node.flags:
        execution.carry_out(turn, Plan((Loan(told.node_id, Reason(ReasonCode.LENT)),)), "master")
        turn.note("server_lent", node_id=told.node_id, cause="nothing is on its GPUs")


def must_be_server(node: Node) -> None:
    """Raises IllegalTransition for a node that is the cluster's own."""
    if node.pool is not NodePool.INFERENCE:
        raise IllegalTransition(
            f"node {node.node_id} is no server of the inference side (pool {node.pool.value})",
            hint='its agent says whose it is: node.pool = "inference", or dlq-nodeagent run '
            "--pool inference",
        )


# --- helpers, in order of use ---------------------------------------------------------------------


def _named(turn: Turn, node_ids: Iterable[NodeId]) -> tuple[NodeId, ...]:
    chosen = tuple(dict.fromkeys(node_ids))
    for node_id in chosen:
        node = turn.node(node_id)
        must_be_server(node)
        if node.state is not NodeState.UP and node.away:
            raise IllegalTransition(
                f"node {node_id} is {node.state.value}: it cannot be proven empty",
                hint="start its agent first; nothing was lent",
            )
    return chosen


def _so_many(turn: Turn, count: int) -> tuple[NodeId, ...]:
    able = [
        node.node_id
        for node in servers(turn)
        if node.away and node.state is NodeState.UP and not node.flags & CLOSED
    ]
    if len(able) < count:
        raise IllegalTransition(
            f"{count} servers are to be lent, and {len(able)} could be",
            hint="dlq admin loan status shows each; nothing was lent",
            able=len(able),
        )
    return tuple(able[:count])


def _take_over(turn: Turn, node_id: NodeId) -> None:
    """It was the cluster's own until its agent came back. Jobs there leave, as if it were asked
    back.
    """
    actor, cause = f"node:{node_id}", "it is a server of the inference side now"
    for flag in sorted(_LENT_AND_ASKED_BACK):
        set_flag = on_node.FlagSet(flag=flag, reason=cause, by=actor)
        turn.step_node(node_id, set_flag, actor=actor, cause=cause)


def _send_away(turn: Turn, node_id: NodeId) -> None:
    """An agent that was silent when the server was asked back, or connected before it was a server,
    hears of it now.
    """
    cluster = turn.state.cluster
    for key in cluster.attempts_on(node_id):
        attempt = cluster.attempts[key]
        if attempt.stop_cause is None and not gives_up(attempt, {node_id}):
            turn.stop(key, StopCause.RECLAIM)


@once(nothing)
def switch(turn: Turn, ask: SwitchLoans) -> Done[None]:
    """The change holds from now on; lent servers stay lent. The record keeps the name of the person
    that switched it off first.
    """
    loans = turn.state.loans
    if not turn.state.config.loans.load:
        raise IllegalTransition(
            "no load is followed: there is nothing to switch",
            hint="name its source in master.toml: [loans] load",
        )
    if ask.on == (loans.off is None):
        return Done(None, "")
    loans.off = None if ask.on else SwitchedOff(ask.caller.actor, turn.now_s)
    turn.batch.meta[SWITCH] = written(loans.off)
    kind = "loans_auto_on" if ask.on else "loans_auto_off"
    turn.note(
        kind, actor=ask.caller.actor, cause="the load is followed" if ask.on else "people lend"
    )
    return Done(None, "")
