"""Exit 0 of a job that was told to leave: it has finished, or it has saved and is to run again.
Pure rules, and the words for its user.

The first of these decides. The job has left its done file (dlq_train does at the end of a run), or
its last beat was at its last step. Its spec says what exit 0 means then. Its main process neither
catches nor ignores the signal of the notice: that would have killed it, so exit 0 was its own end.
Otherwise it is run again: an unfinished job is never taken for a finished one.
The agent looks at the signals when it gives the notice, and a restart of it or of the master keeps
what was seen. An agent of before, a container and a launcher say nothing of signals.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt, RankStatus
from dlq_master.model.jobs.job import ExitZeroInGrace, RunRules
from dlq_master.model.transitions import StopCause

# Stops after which the job goes on later: the work must have been saved.
COMES_BACK = frozenset(
    {
        StopCause.PREEMPT,
        StopCause.PAUSE,
        StopCause.REQUEUE,
        StopCause.DRAIN,
        StopCause.RECLAIM,
        StopCause.HOLD_EXPIRED,
    }
)


class ExitZero(NamedTuple):
    """The meaning of exit 0, and the reason."""

    done: bool
    why: str


def judged(attempt: Attempt, rules: RunRules) -> ExitZero | None:
    """The meaning of the end of an attempt all of whose ranks exited with 0 while it was told to
    leave; None: it did not end so.
    """
    ranks = attempt.ranks
    if attempt.stop_cause not in COMES_BACK or not all(map(is_clean, ranks)):
        return None
    if any(status.done_file for status in ranks):
        return ExitZero(True, "it said that it was done")
    declared = rules.exit0_in_grace
    if declared is not ExitZeroInGrace.EVIDENCE:
        done = declared is ExitZeroInGrace.COMPLETED
        return ExitZero(done, f"on_exit0_while_stopping is {declared.value}")
    if all(status.catches is False for status in ranks):
        return ExitZero(True, "it has no handler for the signal, so it ended by itself")
    if any(status.saved for status in ranks):
        return ExitZero(False, "it saved after it was told to")
    return ExitZero(False, "nothing says that it had finished")


def words(attempt: Attempt, rules: RunRules) -> str:
    """For the user, of an attempt that ended so; empty: it did not."""
    found = judged(attempt, rules)
    if found is None or attempt.stop_cause is None:
        return ""
    taken = "counted as finished" if found.done else "counted as not finished: it runs again"
    return f"exit 0 while it was told to leave ({attempt.stop_cause.value}): {taken}; {found.why}"


def is_clean(status: RankStatus) -> bool:
    """It exited with 0."""
    return status.exit_code == 0 and not status.failed
