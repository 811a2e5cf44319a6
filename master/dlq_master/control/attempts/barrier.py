"""The barrier of a gang: its ranks are made ready, and only when all of them are does any start.

A rank says READY when nothing keeps it from starting, with ports that were free on its node. When
the last one has said so, the same launches go out again without the barrier, with everybody's
ports. So a partial gang never runs, and nobody sits on GPUs for ever waiting for a
node.

When an agent restarts, it finds the rank in its journal. It makes the rank ready again when the
welcome asks for it, and waits, or starts it if the barrier is open by then. When the master
restarts, phases, ports and the opening are on disk. While the line is silent the barrier stays
shut (`barrier_timeout.py`). After the opening a silent rank has its hold, like any rank.
"""

from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import RankPhase
from dlq_master.model.ids import AttemptKey


def open_barrier(turn: Turn, key: AttemptKey) -> None:
    """Let the ranks of a gang go once all of them are ready: the same launches again, without the
    barrier and with everybody's ports."""
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None or not gang.all_ready(attempt):
        return
    ports = attempt.ranks[0].ports
    port = ports[0] if ports else attempt.master_port
    turn.put_attempt(attempt._replace(barrier_time_s=turn.now_s, master_port=port))
    if port is not None:
        turn.state.attempts.ports[port] = key
    turn.note("barrier_opened", key=key)
    for rank, status in enumerate(attempt.ranks):
        if status.phase is RankPhase.STARTING:
            turn.intend("launch", status.node_id, key, attempt.epoch, rank)
    event = gang.progress(turn.state.cluster.attempts[key])
    if event is not None:
        turn.step_attempt(key, event, actor="master")
