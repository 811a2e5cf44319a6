"""Ends that came before the stop that was decided reached their rank; pure rules.

A stop is decided first and told later: an agent may be away, the master may die in between, a lapse
waits for its boundary. A rank that ends by itself in that time knows nothing of it, and is judged
as if nobody had asked. Exit 0 has completed, and exit 1 has failed. The report of the rank's shim
about its notices counts. No clock decides it, but where an agent of before says nothing: there an
end that lies before the decision is its own.
"""

from __future__ import annotations

from dlq_master.model.attempts.attempt import Attempt, RankStatus
from dlq_master.model.transitions import StopCause

# Stops that are no answer to an exit: a rank that had ended before has not heard of them.
_FROM_OUTSIDE = frozenset(
    {
        StopCause.PREEMPT,
        StopCause.PAUSE,
        StopCause.REQUEUE,
        StopCause.DRAIN,
        StopCause.RECLAIM,
        StopCause.TIME_LIMIT,
    }
)
_CLOCKS_S = 0.001  # what two readings of one instant may differ by


def before_stop(attempt: Attempt) -> bool:
    """Whether an attempt all of whose ranks are gone is judged as if it had not been asked to stop.

    So it is where none of its ranks was told. Where some ranks had a notice, another one that
    failed without a word may have failed because they left. Then only a failure from before the
    decision is known to be its own. A cancel stands whatever was done before it was told: its user,
    and the jobs that depend on this one, have had that answer.
    """
    if not _asked(attempt) or any(_unseen(it) for it in attempt.ranks):
        return False
    members = _members(attempt)
    if all(_untold(attempt, it) for it in members):
        return True
    return any(it.failed and _before_decision(attempt, it) for it in members)


def is_own(attempt: Attempt, status: RankStatus) -> bool:
    """Whether a rank ended by itself, and not because a rank was told to leave."""
    if any(it.noticed for it in _members(attempt)):
        return _before_decision(attempt, status)
    return _untold(attempt, status)


def words(attempt: Attempt) -> str:
    """For the story of an attempt that is judged now; empty: its end is no surprise."""
    if attempt.stop_cause is None or not before_stop(attempt):
        return ""
    return f"it ended before it was told to stop ({attempt.stop_cause.value})"


def _asked(attempt: Attempt) -> bool:
    return attempt.stop_cause in _FROM_OUTSIDE and attempt.notice_time_s is not None


def _unseen(status: RankStatus) -> bool:
    """Nobody saw how it ended, or its shim told it to leave after a silence."""
    return (status.lost and not status.left) or status.hold_expired


def _members(attempt: Attempt) -> list[RankStatus]:
    """Those whose ends are the attempt's."""
    return [it for it in attempt.ranks if not it.left] or list(attempt.ranks)


def _untold(attempt: Attempt, status: RankStatus) -> bool:
    return _before_decision(attempt, status) if status.noticed is None else not status.noticed


def _before_decision(attempt: Attempt, status: RankStatus) -> bool:
    """Never of one that was told: clocks may have been set since."""
    asked_s, ended_s = attempt.notice_time_s, status.exited_time_s
    if asked_s is None or ended_s is None or status.noticed:
        return False
    return ended_s < asked_s - _CLOCKS_S
