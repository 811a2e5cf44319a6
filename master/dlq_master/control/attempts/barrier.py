"""The barrier of a gang: no rank starts before all ranks are ready.

A rank reports READY, with free ports of its node, when nothing keeps it from starting. After the
last such report `reports.open_barrier` sends the launches again, without the barrier and with the
ports of all ranks. So a partial gang never runs. This module gives up gangs with a rank that is not
ready in time. Members of a group share one barrier.

When an agent restarts, its journal has the rank. It prepares the rank again when the welcome asks
for it, and waits, or starts it if the barrier is open by then. When the master restarts, phases,
ports and the opening are on disk. While a line is silent the barrier stays shut. After the opening
a silent rank has its hold, like any rank.

The timeout counts from the first ready rank. The rank of a silent node counts as late. It cannot
start any more, since the message that opens the barrier is not sent. So the GPUs of the gang are
released at once, with those of the silent node.
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
    """Once a second: give up gangs with late ranks, and end ranks that cannot start any more."""
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
    """Open the barrier of groups whose last unready member has ended: no report will do it."""
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
    """Whether its node still prepares it, such as by a pull, which has its own time limit."""
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
    """End ranks on silent nodes, if their gang is stopped at its barrier: they never ran."""
    attempt = turn.state.cluster.attempts[key]
    if attempt.stop_cause is None or not attempt.at_barrier:
        return
    for rank, status in enumerate(attempt.ranks):
        silent = turn.state.cluster.nodes[status.node_id].state in _SILENT
        if silent and not status.gone and key in turn.state.cluster.attempts:
            why = status.start_error or f"{status.node_id}: silent before the gang was let go"
            reports.never_ran(turn, key, rank, why)
