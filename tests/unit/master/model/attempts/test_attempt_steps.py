"""What each attempt event changes beside the state."""

import pytest

from dlq_master.model.attempts import attempt_steps as on
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.jobs.job import EndReason
from dlq_master.model.transitions import StopCause
from support.builders import an_attempt


def after(attempt: Attempt, *events: on.AttemptEvent, at_s: float = 10.0) -> Attempt:
    for event in events:
        attempt = on.step(attempt, event, at_s=at_s)
    return attempt


def stop(cause: StopCause, grace_s: float = 60.0) -> on.StopRequested:
    return on.StopRequested(cause=cause, grace_s=grace_s, detail="for job 9")


def test_its_time_counts_from_running_to_the_end() -> None:
    attempt = an_attempt(slots=[("n1", 0b1111)])
    assert attempt.executed_s(99.0) == 0.0
    running = after(attempt, on.Running(), at_s=10.0)
    assert running.executed_s(15.0) == 5.0
    ended = after(running, on.Succeeded(), at_s=20.0)
    assert ended.executed_s(99.0) == 10.0


def test_a_later_stop_wins_only_if_it_is_more_final() -> None:
    pausing = after(an_attempt(), on.Running(), stop(StopCause.PREEMPT))
    cancelled = after(pausing, stop(StopCause.CANCEL, 0.0), at_s=20.0)
    assert (cancelled.stop_cause, cancelled.grace_s) == (StopCause.CANCEL, 0.0)
    assert cancelled.notice_time_s == 10.0
    assert after(cancelled, stop(StopCause.PREEMPT)).stop_cause is StopCause.CANCEL


def test_a_stop_during_silence_is_remembered() -> None:
    silent = after(an_attempt(), on.Running(), on.NodeSilent(), stop(StopCause.CANCEL))
    assert silent.state is AttemptState.UNKNOWN
    assert silent.known_before_silence is AttemptState.RUNNING
    back = after(silent, on.ReturnedPausing())
    assert (back.state, back.stop_cause) == (AttemptState.PAUSING, StopCause.CANCEL)
    assert back.known_before_silence is None


def test_an_attempt_that_returns_running_keeps_its_first_start() -> None:
    silent = after(an_attempt(), on.Running(), on.NodeSilent())
    assert after(silent, on.ReturnedRunning(), at_s=50.0).started_time_s == 10.0
    never = after(an_attempt(), on.NodeSilent())
    assert after(never, on.ReturnedRunning(), at_s=50.0).started_time_s == 50.0


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (on.Succeeded(), EndReason.COMPLETED),
        (on.Failed(reason=EndReason.OOM_HOST), EndReason.OOM_HOST),
        (on.Preempted(), EndReason.PREEMPTED),
        (on.PreemptedLost(), EndReason.PREEMPTED_LOST),
        (on.Cancelled(), EndReason.CANCELLED),
        (on.TimedOut(), EndReason.TIME_LIMIT),
        (on.NodeLost(), EndReason.NODE_LOST),
        (on.StartFailed(detail="barrier"), EndReason.START_FAILED),
    ],
)
def test_every_end_names_its_reason_and_its_instant(
    event: on.AttemptEvent, reason: EndReason
) -> None:
    pausing = after(an_attempt(slots=[("n1", 0b11), ("n2", 0b11)]), stop(StopCause.PREEMPT))
    ended = on.step(pausing, event, at_s=30.0)
    assert (ended.end_reason, ended.ended_time_s) == (reason, 30.0)
    assert not ended.live


def test_a_renewal_changes_nothing_but_the_term() -> None:
    attempt = an_attempt()
    renewed = after(attempt, on.Renewed(term_end_s=600.0))
    assert renewed == attempt._replace(lease=attempt.lease._replace(term_end_s=600.0))
