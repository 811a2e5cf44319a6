"""The answer to an agent's hello: all ranks that shall run on its node, and all that shall end."""

from dlq_master.control.attempts.dispatch import launch_command, stop_command, stop_of
from dlq_master.control.attempts.rank_role import RankRole, ranks_on, role_of
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import Launch, Stop
from dlq_master.model.ids import AttemptKey, NodeId


def standing(turn: Turn, node_id: NodeId, key: AttemptKey, epoch: int, rank: int) -> RankRole:
    """Judges a rank that a node reports, whether or not a living attempt knows it."""
    placed = role_of(turn.state.cluster, node_id, key, epoch, rank)
    if placed is not None:
        return placed
    return RankRole.ORPHAN if turn.known_job(key.job_id) is None else RankRole.STRAY


def launches_for(turn: Turn, node_id: NodeId) -> tuple[Launch, ...]:
    """For a welcome: all that shall run there. The agent starts what it does not have."""
    return tuple(
        launch_command(turn.state, turn.archive, attempt, rank, turn.now_s)
        for attempt, rank, found in ranks_on(turn.state.cluster, node_id)
        if found is RankRole.RUNS
        and (attempt.key, rank) not in turn.state.nodes.unaccounted.get(node_id, {})
    )


def stops_for(turn: Turn, node_id: NodeId) -> tuple[Stop, ...]:
    """For a welcome: all that shall end there, what its hello has shown included."""
    stops = [
        stop_command(turn.state, row, turn.now_s)
        for row in turn.state.attempts.outbox.of_node(node_id)
        if row.kind == "stop"
    ]
    told = {(stop.key, stop.node_rank) for stop in stops}
    stops += [
        stop_of(attempt, rank, turn.now_s)
        for attempt, rank, found in ranks_on(turn.state.cluster, node_id)
        if found is RankRole.LEAVES and (attempt.key, rank) not in told
    ]
    return tuple(stops)
