"""Turns stops, resizes and suspensions into commands, and says when the ranks save."""

from typing import TypeGuard

from dlq_master.control.attempts.dispatch import RESIZE, RESUME, SUSPEND
from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.attempt_steps import (
    LeaveAsked,
    ResizeBegun,
    ResumeAsked,
    StopRequested,
    SuspendAsked,
    SuspendRefused,
)
from dlq_master.model.attempts.grace import SAVE_FACTOR, percentile_95
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import AttemptKey
from dlq_master.model.plan import Change, Lapse, Resize
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import ReasonCode


def tell(turn: Turn, steps: Steps) -> None:
    """Put the commands of all stops and resizes among the steps into the outbox."""
    _count_lapses(turn, steps.happened)
    for one in steps.happened:
        if isinstance(one.event, StopRequested):
            _tell_to_stop(turn, one)
        elif isinstance(one.event, ResizeBegun | LeaveAsked):
            _tell_to_resize(turn, one)
        elif isinstance(one.event, SuspendAsked | SuspendRefused | ResumeAsked):
            _tell_to_move(turn, one)


def _tell_to_stop(turn: Turn, one: Happened) -> None:
    attempt = _attempt(turn, one)
    due_s = turn.now_s + _delay_s(turn, one)
    if attempt.notice_due_s is None or due_s < attempt.notice_due_s:
        attempt = attempt._replace(notice_due_s=due_s)
        turn.put_attempt(attempt)
    cause = (attempt.stop_cause or StopCause.PREEMPT).value
    for rank, status in enumerate(attempt.ranks):
        if not status.gone:
            to = (status.node_id, attempt.key, attempt.epoch, rank)
            turn.intend("stop", *to, cause=cause, grace_s=attempt.grace_s or 0.0)


def _tell_to_resize(turn: Turn, one: Happened) -> None:
    """Launch joining ranks, and stop leaving ranks. The other ranks get no command."""
    attempt = _attempt(turn, one)
    resize = attempt.resize
    assert resize is not None
    begins = isinstance(one.event, ResizeBegun)
    if begins and attempt.leaves.slots:
        later = resize._replace(due_s=turn.now_s + _delay_s(turn, one))
        turn.put_attempt(attempt._replace(resize=later))
    turn.state.attempts.resizing.add(attempt.key)
    for rank, status in enumerate(attempt.ranks):
        to, grace_s = (status.node_id, attempt.key, attempt.epoch, rank), resize.grace_s
        if status.joining and begins:
            turn.intend("launch", *to)
        elif status.leaving and not status.gone:
            turn.intend("stop", *to, cause=RESIZE, grace_s=grace_s)


def _tell_to_move(turn: Turn, one: Happened) -> None:
    """Order all ranks to leave their GPUs, or to come back. A rank that has done so only answers.
    The order replaces an older one that still waits for a silent node.
    """
    attempt = _attempt(turn, one)
    turn.state.attempts.suspended.add(attempt.key)
    kind = SUSPEND if isinstance(one.event, SuspendAsked) else RESUME
    for rank, status in enumerate(attempt.ranks):
        for row in turn.state.attempts.outbox.of_rank(attempt.key, rank):
            if row.kind in (SUSPEND, RESUME):
                turn.delivered(row.sequence)
        if not status.gone:
            to = (status.node_id, attempt.key, attempt.epoch, rank)
            turn.intend(kind, *to, cause=str(attempt.moves))


def _attempt(turn: Turn, one: Happened) -> Attempt:
    assert one.job_id is not None
    assert one.attempt is not None
    return turn.state.cluster.attempts[AttemptKey(one.job_id, one.attempt)]


def _delay_s(turn: Turn, one: Happened) -> float:
    """A job that stops at a boundary saves as late as possible. Other stops are told at once."""
    if not _at_boundary(one.change) or one.job_id is None:
        return 0.0
    wave = turn.saving // max(1, turn.state.config.jobs.concurrent_saves)
    turn.saving += 1
    saves = turn.state.cluster.jobs[one.job_id].saves
    return delay_s(one.change.at_s - turn.now_s, saves, wave=wave, waves=turn.waves)


def _count_lapses(turn: Turn, happened: list[Happened]) -> None:
    """Count the jobs that save already, and the waves that the lapses of this turn make."""
    lapsing = sum(
        _at_boundary(one.change) and isinstance(one.event, StopRequested) for one in happened
    )
    if not lapsing:
        return
    living = turn.state.cluster.attempts.values()
    turn.saving = sum(attempt.state is AttemptState.PAUSING for attempt in living) - lapsing
    concurrent = turn.state.config.jobs.concurrent_saves
    turn.waves = waves_of(lapsing, turn.saving, concurrent)


def _at_boundary(change: Change | None) -> TypeGuard[Lapse | Resize]:
    """Whether the change stops a job at the end of its term. A reclaim does not wait for that."""
    if isinstance(change, Resize):
        return change.reason.code is ReasonCode.RESIZED
    return isinstance(change, Lapse)


def delay_s(left_s: float, saves: tuple[float, ...], *, wave: int, waves: int) -> float:
    """Seconds until the notice, if the boundary is in `left_s`.

    A lapse is decided ahead of its boundary. A job whose saves were measured gets its notice just
    in time. A job that never saved gets it at once. Saves come in waves, so that a boundary does
    not overload the file system. The last of `waves` is just in time, the others are earlier. Waves
    that do not fit before the boundary end after it.
    """
    if not saves:
        return float(wave)
    save_s = SAVE_FACTOR * percentile_95(saves)
    return max(left_s - save_s * (waves - wave), save_s * wave)


def waves_of(lapsing: int, saving: int, concurrent: int) -> int:
    """Waves that `lapsing` jobs need beside the `saving` ones, at most `concurrent` at a time."""
    return -(-(lapsing + saving) // max(1, concurrent))
