"""The barrier of a gang: its ranks are made ready, and only when all of them are does any start.

A rank says READY when nothing keeps it from starting, with ports that were free on its node. When
the last one has said so, the same launches go out again without the barrier, with everybody's
ports (`reports.py`). So a partial gang never runs, and nobody sits on GPUs for ever waiting for a
node. A gang whose last node is too late is given up here. Members of a group wait for each other
at one barrier.

When an agent restarts, it finds the rank in its journal. It makes the rank ready again when the
welcome asks for it, and waits, or starts it if the barrier is open by then. When the master
restarts, phases, ports and the opening are on disk. While the line is silent the barrier stays
shut. After the opening a silent rank has its hold, like any rank.

The timeout counts from the first rank that was ready. A silent node is named as late. Its rank has
not started and cannot any more: only a message that is not sent now could have let it go. So the
others are released at once, and its GPUs with them.
"""

from collections.abc import Sequence

from dlq_common.start_causes import StartCause
from dlq_common.text.units import format_duration
from dlq_master.control.attempts import reports
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.transitions import StopCause

_SILENT = (NodeState.UNREACHABLE, NodeState.DOWN)


def watch(turn: Turn) -> None:
    """Once a second: give up gangs whose last node is too late, and let go of what cannot start."""
    timeout_s = turn.state.config.jobs.barrier_timeout
    _open_groups(turn)
    for key in sorted(turn.state.attempts.starting):
        attempt = turn.state.cluster.attempts.get(key)
        if attempt is None or not attempt.live or attempt.started_time_s is not None:
            turn.state.attempts.starting.discard(key)
            continue
        late = gang.late(attempt, turn.now_s, timeout_s, _first_ready_s(turn, attempt))
        if late and not any(_at_work(turn, attempt, rank) for rank in late):
            _give_up(turn, attempt, late)
        _release_unreachable(turn, key)


def _open_groups(turn: Turn) -> None:
    """Let groups go whose last unready member has ended, and alone: no report of the others is to
    come.
    """
    attempts, jobs = turn.state.cluster.attempts, turn.state.cluster.jobs
    ready: dict[JobId, AttemptKey] = {}
    for key in turn.state.attempts.starting:
        attempt = attempts.get(key)
        if attempt is not None and attempt.together and gang.all_ready(attempt):
            group = jobs[key.job_id].group
            if group is not None:
                ready[group.array_id] = key
    for key in ready.values():
        reports.open_barrier(turn, key)


def _first_ready_s(turn: Turn, attempt: Attempt) -> float | None:
    """When the first rank of its group was ready; None: none is, or it is in no group."""
    gangs = reports.gangs_beside(turn, attempt.key) if attempt.together else ()
    ranks = (rank for one in gangs if one is not None for rank in one.ranks)
    return min((it.ready_time_s for it in ranks if it.ready_time_s is not None), default=None)


def _at_work(turn: Turn, attempt: Attempt, rank: int) -> bool:
    """Its node answers and says what it is about: a pull has a time limit of its own."""
    told = turn.state.attempts.preparing.get((attempt.key, rank))
    node = turn.state.cluster.nodes[attempt.ranks[rank].node_id]
    return bool(told) and node.state is NodeState.UP


def _give_up(turn: Turn, attempt: Attempt, late: Sequence[int]) -> None:
    why = _in_words(attempt, late, turn.state.config.jobs.barrier_timeout)
    key = attempt.key
    turn.note("barrier_timeout", key=key, cause=why)
    ranks = list(attempt.ranks)
    for rank in late:
        ranks[rank] = ranks[rank]._replace(start_error=why, start_cause=StartCause.BARRIER)
    turn.put_attempt(attempt._replace(ranks=tuple(ranks), first_failed_rank=late[0]))
    turn.stop(key, StopCause.GANG_FAILURE, grace_s=0.0, actor="master")


def _in_words(attempt: Attempt, late: Sequence[int], timeout_s: float) -> str:
    names = ", ".join(str(attempt.ranks[rank].node_id) for rank in late)
    waited = format_duration(timeout_s)
    if attempt.at_barrier:
        return f"{names}: not ready {waited} after the first node of the gang"
    return f"{names}: not started {waited} after the gang was let go"


def _release_unreachable(turn: Turn, key: AttemptKey) -> None:
    """Of a gang that is being stopped at its barrier, what no stop can reach has not run either."""
    attempt = turn.state.cluster.attempts[key]
    if attempt.stop_cause is None or not attempt.at_barrier:
        return
    for rank, status in enumerate(attempt.ranks):
        silent = turn.state.cluster.nodes[status.node_id].state in _SILENT
        if silent and not status.gone and key in turn.state.cluster.attempts:
            why = status.start_error or f"{status.node_id}: silent before the gang was let go"
            reports.never_ran(turn, key, rank, why)
