"""The warning to the owner of a job that may run into a reservation, at its start or when nodes are
reserved.

It stands among the events of the job (`reservation_ahead`). Nothing of it is stored beside them; a
restart of the master, or of an agent, tells it once more to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_common.text.instants import format_instant
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.windows import Window, expected_left_s, says_it_saves


def started(turn: Turn, job_id: JobId) -> None:
    """It has just got its GPUs."""
    attempt = turn.state.cluster.live_attempt(turn.state.cluster.jobs[job_id])
    if turn.state.reservations.by_id and attempt is not None:
        _tell(turn, attempt, _ahead(turn, attempt))


def reserved(turn: Turn, node_ids: Iterable[NodeId], reservation_id: str) -> None:
    """These nodes have just been reserved, for later."""
    cluster = turn.state.cluster
    for key in sorted({key for node_id in node_ids for key in cluster.attempts_on(node_id)}):
        attempt = cluster.attempts[key]
        found = [it for it in _ahead(turn, attempt) if it[1].reservation_id == reservation_id]
        if attempt.stop_cause is None:
            _tell(turn, attempt, found)


# --- helpers, in order of use ---------------------------------------------------------------------


def _ahead(turn: Turn, attempt: Attempt) -> list[tuple[NodeId, Window]]:
    """Reservations of its nodes that have not begun, the first first."""
    nodes = turn.state.cluster.nodes
    found = [
        (node_id, window)
        for node_id in attempt.lease.allocation.node_ids
        for window in nodes[node_id].windows
        if window.begin_s > turn.now_s
    ]
    return sorted(found, key=lambda it: (it[1].begin_s, it[0]))


def _tell(turn: Turn, attempt: Attempt, ahead: list[tuple[NodeId, Window]]) -> None:
    """The first counts: it leaves its GPUs then."""
    if not ahead:
        return
    node_id, window = ahead[0]
    job = turn.state.cluster.jobs[attempt.key.job_id]
    left_s = expected_left_s(job)
    begun_s = turn.now_s if attempt.started_time_s is None else attempt.started_time_s
    if left_s is not None and begun_s + left_s <= window.begin_s:
        return
    turn.note(
        "reservation_ahead",
        job_id=job.job_id,
        attempt=attempt.key.number,
        actor="master",
        cause=_words(job, node_id, window),
        reservation=window.reservation_id,
        begin=format_instant(window.begin_s),
    )


def _words(job: Job, node_id: NodeId, window: Window) -> str:
    what = f"{node_id} is reserved from {format_instant(window.begin_s)} ({window.reservation_id})"
    if says_it_saves(job):
        return f"{what}: it is asked to save then, and goes on elsewhere"
    return (
        f"{what}: it is asked to stop then, and starts again elsewhere. Its spec says nothing of "
        "saving, and its unsaved work is lost then"
    )
