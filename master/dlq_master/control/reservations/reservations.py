"""Reservations: nodes that are kept free from an instant on, for maintenance.

From the moment of a reservation no job starts there that would run into it
(model/nodes/windows.py). Deadlines are promised without these nodes in its slots. When it begins
its nodes are flagged `reserved`. Running jobs save and go on elsewhere, as in a drain. When it ends
the nodes take work again, by themselves.

When the master restarts, reservations are rows, and windows stand in the rows of nodes. A
reservation whose begin or end has passed meanwhile begins or ends at the first tick. An agent
restarts, or the line is silent: nothing; a rank that nobody can reach is told to go when its node
is back.

A job may run into a reservation. Its owner is warned when it starts, or when its nodes are reserved
(`reservation_ahead`). A restart of the master, or of an agent, warns nobody once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from dlq_common.errors import InvalidRequest, QuotaExceeded
from dlq_common.text.instants import format_instant
from dlq_common.text.units import DAY
from dlq_master.control.attempts import work_loss
from dlq_master.control.loop.once import Done, nothing, once
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.stimuli import CancelReservation, CreateReservation
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes import reserved as booked_nodes
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.reserved import KeptNodes
from dlq_master.model.nodes.windows import Window, expected_left_s, says_it_saves
from dlq_master.store.tables.tenants import Reservation

LONGEST_S: Final = 30.0 * DAY
AHEAD_S: Final = 30.0 * DAY
MOST: Final = 1_000


def _made(turn: Turn, _ask: CreateReservation, word: str) -> Reservation:
    return turn.state.reservations.by_id[word]


def _is_there(turn: Turn, _ask: CreateReservation, word: str) -> bool:
    return word in turn.state.reservations.by_id


@once(_made, still=_is_there)
def create(turn: Turn, ask: CreateReservation) -> Done[Reservation]:
    """Reserve nodes. A repeat returns what stands."""
    nodes = [turn.node(node_id).node_id for node_id in ask.node_ids]
    begin_s = turn.now_s if ask.begin_s is None else ask.begin_s
    _check(turn, begin_s, ask.end_s)
    if begin_s <= turn.now_s and not ask.accept_loss:
        there = (key for name in nodes for key in turn.state.cluster.attempts_on(name))
        work_loss.refuse(turn, dict.fromkeys(there), work_loss.RESERVE)
    made = Reservation(
        reservation_id=f"m{_next(turn.state)}",
        node_ids=tuple(sorted(set(nodes))),
        begin_s=begin_s,
        end_s=ask.end_s,
        reason=ask.reason,
        created_by=ask.caller.name,
        created_time_s=turn.now_s,
    )
    turn.put(turn.state.reservations.by_id, made)
    _show(turn, made.node_ids, ask.caller.actor)
    turn.note(
        "nodes_reserved",
        actor=ask.caller.actor,
        cause=ask.reason,
        reservation=made.reservation_id,
        nodes=",".join(made.node_ids),
        begin=format_instant(begin_s),
        end=format_instant(ask.end_s),
    )
    turn.state.reservations.conflict_watch.changed = True
    if begin_s <= turn.now_s:
        _begin(turn, made)
    else:
        _warn_reserved(turn, made.node_ids, made.reservation_id)
    return Done(turn.state.reservations.by_id[made.reservation_id], made.reservation_id)


@once(nothing)
def cancel(turn: Turn, ask: CancelReservation) -> Done[None] | None:
    """Cancel a reservation, or end it early; an unknown one is gone already."""
    found = turn.state.reservations.by_id.get(ask.reservation_id)
    if found is None:
        return None
    _end(turn, found, ask.caller.actor, "cancelled")
    return Done(None, ask.reservation_id)


def watch(turn: Turn) -> None:
    """Once a second: begin and end the reservations that are due."""
    for one in list(turn.state.reservations.by_id.values()):
        if turn.now_s >= one.end_s:
            _end(turn, one, "master", "over")
        elif turn.now_s >= one.begin_s and not one.active:
            _begin(turn, one)


def concerned(turn: Turn) -> list[JobId]:
    """The jobs that may newly run into a reservation, or no longer do. When reservations have
    changed, these are all waiting jobs. Else they are the jobs that have just come to wait, and
    those that would run into one by now.
    """
    state, bookings = turn.state, turn.state.reservations.conflict_watch
    jobs = state.cluster.jobs
    found: list[JobId] = []
    if bookings.changed:
        bookings.changed = False
        found = list(jobs)
    elif state.reservations.by_id:
        found = list(dict.fromkeys([*bookings.moved_jobs, *bookings.due.due(turn.now_s)]))
    bookings.moved_jobs.clear()
    for job_id in found:
        bookings.due.clear(job_id)
    return [job_id for job_id in found if job_id in jobs and _may_move(jobs[job_id])]


def kept_off(state: State, job: Job, now_s: float) -> KeptNodes:
    """Nodes on which the job would run into a reservation."""
    if not state.reservations.by_id:
        return KeptNodes((), inf)
    nodes = state.cluster.nodes
    booked = sorted(
        {node_id for one in state.reservations.by_id.values() for node_id in one.node_ids}
    )
    there = [nodes[node_id] for node_id in booked if node_id in nodes]
    return booked_nodes.kept_off(job, there, now_s, state.terms, state.cluster.slowest_pace)


def on_them(state: State, one: Reservation) -> tuple[list[JobId], list[JobId]]:
    """The jobs that hold GPUs of its nodes, and those of them that are expected to run into it, or
    may.
    """
    keys = {key for node_id in one.node_ids for key in state.cluster.attempts_on(node_id)}
    late = []
    for key in sorted(keys):
        job, attempt = state.cluster.jobs[key.job_id], state.cluster.attempts[key]
        left_s = expected_left_s(job, attempt.paced(job.request))
        started_s = attempt.started_time_s
        begun_s = one.begin_s if started_s is None else started_s
        if left_s is None or begun_s + left_s > one.begin_s:
            late.append(key.job_id)
    return sorted({key.job_id for key in keys}), late


# --- helpers, in order of use ---------------------------------------------------------------------


def _check(turn: Turn, begin_s: float, end_s: float) -> None:
    now_s = turn.now_s
    if begin_s < now_s - 1.0:
        when = format_instant(begin_s)
        raise InvalidRequest(f"it would begin in the past: {when}", field="begin_time")
    if end_s <= begin_s or end_s <= now_s:
        raise InvalidRequest("it would end before it begins", field="end_time")
    if begin_s > now_s + AHEAD_S:
        raise InvalidRequest("it would begin in more than 30 days", field="begin_time")
    if end_s > begin_s + LONGEST_S:
        raise InvalidRequest("it would last for more than 30 days", field="end_time")
    if len(turn.state.reservations.by_id) >= MOST:
        raise QuotaExceeded(f"there are {MOST} reservations", limit=MOST, used=MOST, asked=1)


def _next(state: State) -> int:
    """No number comes twice, not even after a cancellation: a second cancel must not hit another
    reservation.
    """
    _numbered(state)
    state.reservations.conflict_watch.last += 1
    return state.reservations.conflict_watch.last


def _numbered(state: State) -> None:
    taken = [int(name[1:]) for name in state.reservations.by_id if name[1:].isdecimal()]
    state.reservations.conflict_watch.last = max([state.reservations.conflict_watch.last, *taken])


def _begin(turn: Turn, one: Reservation) -> None:
    turn.put(turn.state.reservations.by_id, one._replace(active=True))
    words = f"{one.reservation_id}: {one.reason}" if one.reason else one.reservation_id
    for node_id in one.node_ids:
        if node_id in turn.state.cluster.nodes:
            flag = on_node.FlagSet(flag=NodeFlag.RESERVED, reason=words, by=one.created_by)
            turn.step_node(node_id, flag, actor="master", cause=words)
            turn.move_away(node_id, actor="master")


def _end(turn: Turn, one: Reservation, actor: str, cause: str) -> None:
    _numbered(turn.state)
    turn.drop(turn.state.reservations.by_id, one.reservation_id)
    others = [it for it in turn.state.reservations.by_id.values() if it.active]
    still = {node_id for it in others for node_id in it.node_ids}
    for node_id in one.node_ids:
        node = turn.state.cluster.nodes.get(node_id)
        if node is not None and NodeFlag.RESERVED in node.flags and node_id not in still:
            cleared = on_node.FlagCleared(flag=NodeFlag.RESERVED)
            turn.step_node(node_id, cleared, actor=actor, cause=cause)
    _show(turn, one.node_ids, actor)
    turn.note("reservation_ended", actor=actor, cause=cause, reservation=one.reservation_id)
    turn.state.reservations.conflict_watch.changed = True


def _show(turn: Turn, node_ids: Iterable[NodeId], actor: str) -> None:
    """Let the nodes say when they are reserved."""
    for node_id in node_ids:
        if node_id not in turn.state.cluster.nodes:
            continue
        windows = tuple(
            sorted(
                Window(one.begin_s, one.end_s, one.reservation_id)
                for one in turn.state.reservations.by_id.values()
                if node_id in one.node_ids
            )
        )
        turn.step_node(node_id, on_node.Booked(windows=windows), actor=actor)


def _may_move(job: Job) -> bool:
    return job.live_attempt is None and job.state in (JobState.QUEUED, JobState.HELD)


def warn_at_start(turn: Turn, job_id: JobId) -> None:
    """It has just got its GPUs."""
    attempt = turn.state.cluster.live_attempt(turn.state.cluster.jobs[job_id])
    if turn.state.reservations.by_id and attempt is not None:
        _warn(turn, attempt, _ahead(turn, attempt))


def _warn_reserved(turn: Turn, node_ids: Iterable[NodeId], reservation_id: str) -> None:
    """These nodes have just been reserved, for later."""
    cluster = turn.state.cluster
    for key in sorted({key for node_id in node_ids for key in cluster.attempts_on(node_id)}):
        attempt = cluster.attempts[key]
        found = [it for it in _ahead(turn, attempt) if it[1].reservation_id == reservation_id]
        if attempt.stop_cause is None:
            _warn(turn, attempt, found)


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


def _warn(turn: Turn, attempt: Attempt, ahead: list[tuple[NodeId, Window]]) -> None:
    """The first counts: it leaves its GPUs then."""
    if not ahead:
        return
    node_id, window = ahead[0]
    job = turn.state.cluster.jobs[attempt.key.job_id]
    left_s = expected_left_s(job, attempt.paced(job.request))
    begun_s = turn.now_s if attempt.started_time_s is None else attempt.started_time_s
    if left_s is not None and begun_s + left_s <= window.begin_s:
        return
    turn.note(
        "reservation_ahead",
        key=attempt.key,
        cause=_warning(job, node_id, window),
        reservation=window.reservation_id,
        begin=format_instant(window.begin_s),
    )


def _warning(job: Job, node_id: NodeId, window: Window) -> str:
    what = f"{node_id} is reserved from {format_instant(window.begin_s)} ({window.reservation_id})"
    if says_it_saves(job):
        return f"{what}: it is asked to save then, and goes on elsewhere"
    return (
        f"{what}: it is asked to stop then, and starts again elsewhere. Its spec says nothing of "
        "saving, and its unsaved work is lost then"
    )
