"""Whoever ends before a stop reached it is judged as if nobody had asked; whoever was told, as one
that left.
"""

import pytest

from dlq_master.model.attempts import attempt_steps as on
from dlq_master.model.attempts import gang, unnoticed_ends
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import EndReason, JobState, RunRules
from dlq_master.model.transitions import StopCause
from support.builders import a_waiting_job, an_attempt

ASKED_S = 50.0
TAKEN = [
    StopCause.PREEMPT,
    StopCause.PAUSE,
    StopCause.REQUEUE,
    StopCause.DRAIN,
    StopCause.RECLAIM,
]
RULES = RunRules()
FAILED = on.Failed(reason=EndReason.USER_ERROR, exit_code=1)


def rank(
    number: int, code: int | None, noticed: bool | None, at_s: float = 60.0, **more: object
) -> RankStatus:
    """One that ended ten seconds after the decision, unless that is said."""
    status = RankStatus(
        NodeId(f"n{number}"), RankPhase.EXITED, exit_code=code, noticed=noticed, exited_time_s=at_s
    )
    return status._replace(**more)  # type: ignore[arg-type]  # any field


def stopped(cause: StopCause, *ranks: RankStatus) -> Attempt:
    slots = [(status.node_id, 0b1) for status in ranks]
    attempt = an_attempt(slots=slots, state=AttemptState.PAUSING)._replace(
        started_time_s=10.0, stop_cause=cause, notice_time_s=ASKED_S
    )
    for number, status in enumerate(ranks):
        attempt = gang.heard(attempt, number, status)
    return attempt


@pytest.mark.parametrize("cause", [*TAKEN, StopCause.TIME_LIMIT])
def test_exit_0_before_any_notice_has_completed(cause: StopCause) -> None:
    for ranks in ([rank(0, 0, False)], [rank(0, 0, False), rank(1, 0, False)]):
        attempt = stopped(cause, *ranks)
        assert gang.verdict(attempt, RULES) == on.Succeeded()
        assert (
            unnoticed_ends.words(attempt) == f"it ended before it was told to stop ({cause.value})"
        )


@pytest.mark.parametrize("cause", [*TAKEN, StopCause.TIME_LIMIT])
def test_a_failure_before_any_notice_is_the_jobs(cause: StopCause) -> None:
    assert gang.verdict(stopped(cause, rank(0, 1, False)), RULES) == FAILED
    both = stopped(cause, rank(0, 1, False, at_s=60.0), rank(1, 1, False, at_s=63.0))
    assert gang.verdict(both, RULES) == FAILED
    assert both.first_failed_rank == 0
    oom = stopped(cause, rank(0, None, False, signal=9, oom_killed=True))
    end = gang.verdict(oom, RULES)
    assert isinstance(end, on.Failed)
    assert end.reason is EndReason.OOM_HOST


@pytest.mark.parametrize("cause", TAKEN)
@pytest.mark.parametrize("code", [0, 1])
def test_who_was_told_has_left_whatever_the_clocks_say(cause: StopCause, code: int) -> None:
    """The master's clock was set in between: the end seems to lie before the decision."""
    attempt = stopped(cause, rank(0, code, True, at_s=ASKED_S - 20.0))
    assert gang.verdict(attempt, RULES) == on.PreemptedLost(exit_code=code)
    assert unnoticed_ends.words(attempt) == ""


@pytest.mark.parametrize("cause", TAKEN)
def test_a_gang_of_which_some_were_told_has_left(cause: StopCause) -> None:
    """What one of them did without a word may follow from what the others did with one."""
    for code in (0, 1):
        mixed = stopped(cause, rank(0, 0, True), rank(1, code, False))
        assert isinstance(gang.verdict(mixed, RULES), on.PreemptedLost)
        assert mixed.first_failed_rank is None
    done = stopped(cause, rank(0, 0, True, done_file=True), rank(1, 0, False))
    assert gang.verdict(done, RULES) == on.Succeeded()
    saved = stopped(cause, rank(0, 0, True, saved=True), rank(1, 0, False))
    assert isinstance(gang.verdict(saved, RULES), on.Preempted)


@pytest.mark.parametrize("cause", TAKEN)
def test_a_rank_that_failed_before_the_decision_has_taken_the_others_along(
    cause: StopCause,
) -> None:
    attempt = stopped(cause, rank(0, None, True, signal=15), rank(1, 1, False, at_s=ASKED_S - 5.0))
    assert gang.verdict(attempt, RULES) == FAILED
    assert attempt.first_failed_rank == 1


@pytest.mark.parametrize("cause", TAKEN)
def test_an_agent_of_before_does_not_say_and_is_judged_by_when_it_ended(cause: StopCause) -> None:
    late = stopped(cause, rank(0, 0, None))
    assert gang.verdict(late, RULES) == on.PreemptedLost(exit_code=0)
    early = stopped(cause, rank(0, 0, None, at_s=ASKED_S - 5.0))
    assert gang.verdict(early, RULES) == on.Succeeded()
    one_says = stopped(cause, rank(0, 0, None), rank(1, 0, False))
    assert isinstance(gang.verdict(one_says, RULES), on.PreemptedLost)


@pytest.mark.parametrize("cause", TAKEN)
def test_what_nobody_saw_end_is_lost_all_the_same(cause: StopCause) -> None:
    attempt = stopped(cause, rank(0, 0, False), rank(1, None, None, lost=True))
    assert gang.verdict(attempt, RULES) == on.NodeLost()


@pytest.mark.parametrize("cause", TAKEN)
def test_one_that_was_silent_too_long_was_told_by_its_shim(cause: StopCause) -> None:
    attempt = stopped(cause, rank(0, 0, False), rank(1, 0, True, hold_expired=True))
    assert isinstance(gang.verdict(attempt, RULES), on.PreemptedLost)


@pytest.mark.parametrize("cause", TAKEN)
def test_who_left_in_a_live_resize_says_nothing_of_the_others(cause: StopCause) -> None:
    left = rank(1, 0, True, at_s=20.0, leaving=True)
    assert gang.verdict(stopped(cause, rank(0, 0, False), left), RULES) == on.Succeeded()


@pytest.mark.parametrize(("code", "noticed"), [(1, False), (0, True), (0, None), (0, False)])
def test_a_cancel_that_was_answered_stands(code: int, noticed: bool | None) -> None:
    attempt = stopped(StopCause.CANCEL, rank(0, code, noticed))
    end = gang.verdict(attempt, RULES)
    assert end == on.Cancelled()
    job = a_waiting_job(end_time_s=55.0, state=JobState.CANCELLED, live_attempt=1)
    assert gang.consequence(attempt, end, job, gang.usage(attempt, end, job, 60.0)) is None
