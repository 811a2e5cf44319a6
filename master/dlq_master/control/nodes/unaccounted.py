"""Ranks without a record at their agent, although the host has not booted: they may still run.

They are UNKNOWN and keep their GPUs until the hold and its margin have passed since the first hello
without them. Then they are lost. If the agent has found their processes, these are stopped first.
An operator's fence loses them at once. After a restart of the master the next hello begins the hold
anew. In silence the rules for silent nodes decide.
"""

from dlq_master.control.attempts import reports
from dlq_master.control.attempts.ranks import RankRole, ranks_on, standing
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes import instances
from dlq_master.control.stimuli.nodes import OpenSession
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts.attempt import AttemptState, RankPhase
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.lease import requeue_time_s

_CAUSE = "its agent has no record of it, and it may still run"


def take(turn: Turn, ask: OpenSession, *, unbroken: bool) -> None:
    """After a hello: find the ranks that it does not name. `unbroken`: the agent has kept its
    journal, so a launch that it does not know has never reached it.
    """
    node_id, state = ask.node_id, turn.state
    told = {(report.key, report.epoch, report.node_rank) for report in ask.reports}
    runs = {(key, rank) for key, _, rank in ask.unexplained}
    ran = state.nodes.unexplained.get(node_id, frozenset())
    state.nodes.unexplained[node_id] = frozenset(runs)
    before = state.nodes.unaccounted.pop(node_id, {})
    left: dict[tuple[AttemptKey, int], float] = {}
    for attempt, rank, _ in list(ranks_on(state.cluster, node_id)):
        it = (attempt.key, rank)
        began = attempt.ranks[rank].phase is not RankPhase.ASSIGNED
        if (attempt.key, attempt.epoch, rank) in told or not (
            began or it in before or it in runs or not unbroken
        ):
            continue
        left[it] = before.get(it, turn.now_s)
    state.nodes.unaccounted[node_id] = left
    for key, rank in left:
        if (key, rank) not in before:
            _mark_unknown(turn, node_id, key, rank)
    for key, _ in [it for it in left if it in ran and it not in runs]:
        if state.cluster.attempts[key].stop_cause is not None:
            _lose(turn, node_id, key, "its processes were ended as ordered")
    _stop_strays(turn, ask)
    instances.remember(turn, node_id)


def watch(turn: Turn, node_id: NodeId) -> None:
    """Once a second, while the node answers: stop or lose ranks whose hold is over."""
    state = turn.state
    waiting = state.nodes.unaccounted.get(node_id)
    if not waiting or state.frozen:
        return
    longer_s = state.cluster.nodes[node_id].hold_extension_s
    for (key, rank), since_s in list(waiting.items()):
        attempt = state.cluster.attempts.get(key)
        if attempt is None or attempt.ranks[rank].gone:
            waiting.pop((key, rank), None)
            continue
        if turn.now_s < requeue_time_s(since_s, attempt.lease.hold_s + longer_s, state.terms):
            continue
        if (key, rank) not in state.nodes.unexplained.get(node_id, frozenset()):
            _lose(turn, node_id, key, "its agent has no record of it, and its hold is over")
        elif not any(row.kind == "stop" for row in state.attempts.outbox.of_rank(key, rank)):
            turn.intend("stop", node_id, key, attempt.epoch, rank, "hold_expired")
    if not waiting:
        instances.remember(turn, node_id)


def fence(turn: Turn, node_id: NodeId, *, actor: str, cause: str) -> tuple[AttemptKey, ...]:
    """Lose these ranks now: an operator says that they do not run. Returns their attempts."""
    keys = tuple(dict.fromkeys(key for key, _ in turn.state.nodes.unaccounted.get(node_id, {})))
    for key in keys:
        _lose(turn, node_id, key, cause, actor)
    instances.remember(turn, node_id)
    return keys


def _lose(turn: Turn, node_id: NodeId, key: AttemptKey, cause: str, actor: str = "master") -> None:
    waiting = turn.state.nodes.unaccounted.get(node_id, {})
    for it in [it for it in waiting if it[0] == key]:
        del waiting[it]
    if key in turn.state.cluster.attempts:
        reports.lose(turn, key, actor=actor, cause=cause, node_id=node_id)


def _mark_unknown(turn: Turn, node_id: NodeId, key: AttemptKey, rank: int) -> None:
    turn.note(
        "rank_unaccounted",
        key=key,
        node_id=node_id,
        actor=f"node:{node_id}",
        cause=_CAUSE,
        node_rank=rank,
    )
    if turn.state.cluster.attempts[key].state is not AttemptState.UNKNOWN:
        turn.step_attempt(key, on_attempt.NodeSilent(), actor="master", cause=_CAUSE)


def _stop_strays(turn: Turn, ask: OpenSession) -> None:
    """Stop processes without a record that no live attempt wants. The node gets no job before."""
    for key, epoch, rank in ask.unexplained:
        found = standing(turn, ask.node_id, key, epoch, rank)
        if found.ours:
            continue
        turn.state.nodes.unowned.setdefault(ask.node_id, {})[key, rank] = ()
        if found is RankRole.ORPHAN:
            turn.skip_job_id(key.job_id)
            turn.note(
                "orphan_seen", node_id=ask.node_id, actor=f"node:{ask.node_id}", rank=str(key)
            )
        else:
            reports.stop_stray(turn, ask.node_id, key, epoch, rank)
