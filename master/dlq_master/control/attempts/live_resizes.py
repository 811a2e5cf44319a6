"""Jobs that are resized while they run (model/attempts/live_resize.py): ranks are launched and
stopped while the others go on.

A rank that joins has a number that no rank of its attempt has had. So its launch is fenced like any
other, and starts once. Its GPUs are the attempt's from the plan on. Those of a rank that leaves
stay the attempt's until its agent reports them free.

When the agent restarts, it finds launch and stop in its journal, and goes on with them. When the
master restarts, the joining and leaving ranks are on disk with the attempt. The commands are in the
outbox, and a welcome repeats both. While a node is silent, the job is UNKNOWN as a whole and trains
on. A rank that is then lost has left, or never joined. When a rank does not start, the others go on
without it. When one fails soon after it joined, the job starts again without that node
(`live_resize.spoiled_by`). When one does not leave, its shim kills it after its grace.
"""

from dlq_common.live_resize import LIVE
from dlq_common.text.units import format_duration
from dlq_master.control.attempts.dispatch import RESIZE
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import live_resize
from dlq_master.model.attempts.attempt import Attempt, RankPhase, RankStatus
from dlq_master.model.attempts.attempt_steps import LeaveAsked, ResizeSettled
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job_steps import Resized, ResizedLive
from dlq_master.model.nodes.node import NodeState


def watch(turn: Turn) -> None:
    """Once a second: give up joining ranks that have not started in time."""
    timeout_s = turn.state.config.jobs.barrier_timeout
    for key in sorted(turn.state.attempts.resizing):
        attempt = turn.state.cluster.attempts.get(key)
        if attempt is None or attempt.resize is None:
            turn.state.attempts.resizing.discard(key)
        elif attempt.stop_cause is None and turn.now_s >= attempt.resize.since_s + timeout_s:
            late = [it.node_id for at, it in enumerate(attempt.ranks) if _late(turn, attempt, at)]
            if late:
                why = f"{', '.join(late)}: not started after {format_duration(timeout_s)}"
                _leave(turn, key, tuple(late), why)


def settle(turn: Turn, key: AttemptKey) -> bool:
    """Reports of ranks that join or leave may end the resize. Returns whether the attempt has lost
    GPUs.
    """
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None or attempt.stop_cause is not None:
        return False
    if live_resize.members_gone(attempt):
        _end_others(turn, attempt)
        return False
    if attempt.resize is None and not live_resize.lost_some(attempt):
        return False
    sizes = turn.job(key.job_id).request.sizes
    if live_resize.lost_some(attempt) and (more := live_resize.too_many(attempt, sizes)):
        _leave(turn, key, more, _failed(attempt))
        attempt = turn.state.cluster.attempts[key]
    if not live_resize.is_settled(attempt):
        return False
    return _settled(turn, attempt)


# --- helpers, in order of use ---------------------------------------------------------------------


def _late(turn: Turn, attempt: Attempt, rank: int) -> bool:
    """Its node answers and pulls an image, say: that has a time limit of its own."""
    status = attempt.ranks[rank]
    if not status.joining or status.phase is RankPhase.RUNNING:
        return False
    at_work = bool(turn.state.attempts.preparing.get((attempt.key, rank)))
    return not at_work or turn.node(status.node_id).state is not NodeState.UP


def _leave(turn: Turn, key: AttemptKey, node_ids: tuple[NodeId, ...], why: str) -> None:
    turn.step_attempt(key, LeaveAsked(node_ids=node_ids, detail=why), actor="master")


def _end_others(turn: Turn, attempt: Attempt) -> None:
    """The job is over, so ranks that have not joined, or not left yet, serve nobody."""
    for rank, status in enumerate(attempt.ranks):
        known = turn.state.attempts.outbox.of_rank(attempt.key, rank)
        if not status.gone and not any(row.kind == "stop" and not row.grace_s for row in known):
            turn.intend("stop", status.node_id, attempt.key, attempt.epoch, rank, RESIZE)


def _settled(turn: Turn, attempt: Attempt) -> bool:
    key, held = attempt.key, attempt.lease.allocation
    if attempt.resize is None:  # one failed that had only just joined
        _leave(turn, key, (), _failed(attempt))
        attempt = turn.state.cluster.attempts[key]
    begun = attempt.resize
    assert begun is not None
    turn.step_attempt(key, ResizeSettled(), actor="master")
    gpus = turn.state.cluster.attempts[key].lease.allocation.width
    cost_s = round(turn.now_s - max(begun.since_s, begun.due_s), 3)
    if gpus == begun.from_gpus:
        why = begun.fault or _failed(attempt)
        turn.note("resize_failed", key=key, cause=why, gpus=gpus)
    elif not turn.job(key.job_id).ended:
        done = Resized(begun.from_gpus, gpus, cost_s, begun.why, LIVE)
        turn.step_job(key.job_id, ResizedLive(resized=done), actor="master")
    return gpus < held.width


def _failed(attempt: Attempt) -> str:
    """A rank that was to join and has not, or that has just joined and is gone, with its last
    words.
    """
    here = {status.node_id for status in attempt.ranks if not status.left}
    lost = set(attempt.lease.allocation.node_ids) - here
    last = {status.node_id: status for status in attempt.ranks if status.node_id in lost}
    return "; ".join(f"{name}: {_end(status)}" for name, status in last.items())


def _end(status: RankStatus) -> str:
    return status.words or ("nobody knows of it any more" if status.lost else "it ended")
