"""What each job event changes beside the state."""

import pytest

from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import Checkpoint, EndReason, HoldKind, Job, JobState, shown_state
from dlq_master.model.jobs.job_steps import Usage
from dlq_master.model.transitions import IllegalStep, StopCause
from support.builders import a_job, a_waiting_job


def after(job: Job, *events: job_steps.JobEvent, at_s: float = 100.0) -> Job:
    for event in events:
        job = job_steps.step(job, event, at_s=at_s)
    return job


def test_a_job_that_was_placed_waits_no_longer() -> None:
    job = after(a_waiting_job(), job_steps.Placed(attempt=1))
    assert (job.live_attempt, job.attempts, job.queued_since_s) == (1, 1, None)
    assert not job.waiting


def test_an_attempt_number_is_never_used_twice() -> None:
    job = a_waiting_job(attempts=3)
    with pytest.raises(IllegalStep):
        job_steps.step(job, job_steps.Placed(attempt=3), at_s=1.0)
    with pytest.raises(IllegalStep):
        job_steps.step(
            job._replace(live_attempt=4, attempts=4), job_steps.Placed(attempt=5), at_s=1.0
        )


def test_waiting_counts_for_the_knob_only_after_the_first_run() -> None:
    fresh = after(a_waiting_job(), job_steps.Placed(attempt=1), at_s=50.0)
    assert fresh.waited_s == 0.0
    ran = after(fresh, job_steps.Requeued(reason=EndReason.PREEMPTED, usage=Usage(80.0, 10.0)))
    again = after(ran, job_steps.Placed(attempt=2), at_s=130.0)
    assert again.waited_s == 30.0


def test_promotion_resets_both_counters_and_keeps_the_totals() -> None:
    used = Usage(gpu_s=800.0, executed_s=100.0)
    job = a_waiting_job(live_attempt=1, attempts=1, level=1, queued_since_s=None)
    job = after(job, job_steps.Requeued(reason=EndReason.PREEMPTED, usage=used))
    job = after(job, job_steps.Promoted())
    assert (job.level, job.promoted) == (0, True)
    assert (job.attained_gpu_s, job.executed_s, job.waited_s) == (0.0, 0.0, 0.0)
    assert (job.total_gpu_s, job.total_executed_s) == (800.0, 100.0)


def test_cancelling_a_running_job_ends_it_at_once_and_stops_the_attempt() -> None:
    job = a_waiting_job(7, live_attempt=2, attempts=2, queued_since_s=None)
    cancelled = job_steps.step(job, job_steps.Cancelled(), at_s=9.0)
    assert cancelled.state is JobState.CANCELLED
    assert job_steps.stops(job_steps.Cancelled()) is StopCause.CANCEL
    books = job_steps.vacated(cancelled, Usage(gpu_s=4.0, executed_s=2.0))
    assert (books.live_attempt, books.total_gpu_s) == (None, 4.0)
    assert books.state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("kind", "stops"),
    [(HoldKind.USER, False), (HoldKind.ADMIN, False), (HoldKind.PAUSED, True)],
)
def test_only_a_pause_stops_what_runs(kind: HoldKind, stops: bool) -> None:
    job = a_waiting_job(7, live_attempt=1, attempts=1, queued_since_s=None)
    event = job_steps.Held(kind=kind, reason="later")
    held = job_steps.step(job, event, at_s=9.0)
    assert (held.state, held.hold) == (JobState.HELD, kind)
    assert job_steps.stops(event) is (StopCause.PAUSE if stops else None)


def test_a_held_job_does_not_requeue_but_may_complete() -> None:
    job = a_waiting_job(7, live_attempt=1, attempts=1, queued_since_s=None)
    held = after(job, job_steps.Held(kind=HoldKind.USER))
    assert after(held, job_steps.Requeued(reason=EndReason.PREEMPTED)).state is JobState.HELD
    assert after(held, job_steps.Completed()).state is JobState.COMPLETED


def test_a_released_job_waits_from_then_on() -> None:
    held = after(a_waiting_job(), job_steps.Held(kind=HoldKind.USER))
    assert held.queued_since_s is None
    assert after(held, job_steps.Released(), at_s=70.0).queued_since_s == 70.0


@pytest.mark.parametrize(
    ("reason", "counter"),
    [
        (EndReason.PREEMPTED, "preemptions"),
        (EndReason.PREEMPTED_LOST, "preemptions"),
        (EndReason.NODE_LOST, "infra_failures"),
        (EndReason.START_FAILED, "infra_failures"),
        (EndReason.REQUEUE_EXIT, "requeues"),
        (EndReason.USER_ERROR, "restarts"),
        (EndReason.SIGNAL, "restarts"),
    ],
)
def test_every_reason_to_run_again_has_its_own_counter(reason: EndReason, counter: str) -> None:
    job = a_waiting_job(live_attempt=1, attempts=1, queued_since_s=None)
    job = after(job, job_steps.Requeued(reason=reason, usage=Usage(8.0, 1.0, 4.0)))
    counters = ("preemptions", "infra_failures", "requeues", "restarts")
    assert {name: getattr(job, name) for name in counters} == {
        name: int(name == counter) for name in counters
    }
    assert (job.attained_gpu_s, job.executed_s, job.lost_gpu_s) == (8.0, 1.0, 4.0)
    assert job.queued_since_s == 100.0


def test_the_signal_that_ended_a_job_is_of_its_last_attempt() -> None:
    job = a_waiting_job(live_attempt=1, attempts=1, queued_since_s=None)
    killed = after(job, job_steps.Requeued(reason=EndReason.SIGNAL, signal=9))
    assert (killed.signal, killed.exit_code) == (9, None)
    again = after(killed, job_steps.Placed(attempt=2))
    assert after(again, job_steps.Failed(reason=EndReason.SIGNAL, signal=11)).signal == 11
    assert after(again, job_steps.Failed(reason=EndReason.USER_ERROR, exit_code=3)).signal is None
    assert after(again, job_steps.Completed()).signal is None


def test_who_holds_a_job_is_kept_until_it_is_released() -> None:
    held = after(a_waiting_job(), job_steps.Held(kind=HoldKind.ADMIN, reason="disk", by="root"))
    assert (held.held_by, held.hold_reason) == ("root", "disk")
    assert after(held, job_steps.Released()).held_by == ""
    lost = job_steps.Poisoned(reason=EndReason.NODE_LOST)
    assert after(held, lost).held_by == ""


def test_the_last_twenty_saves_are_kept() -> None:
    job = a_waiting_job()
    for second in range(25):
        checkpoint = Checkpoint(f"/c/{second}", second, float(second), 1)
        job = after(job, job_steps.Saved(checkpoint=checkpoint, save_s=float(second)))
    assert job.saves == tuple(float(second) for second in range(5, 25))
    assert job.checkpoint is not None
    assert job.checkpoint.step == 24


def test_the_first_start_is_remembered() -> None:
    job = after(a_waiting_job(), job_steps.Ran(), at_s=3.0)
    job = after(job, job_steps.Ran(), at_s=8.0)
    assert (job.first_start_time_s, job.start_time_s) == (3.0, 8.0)


def test_users_see_the_attempt_while_there_is_one() -> None:
    assert shown_state(a_job(), None) == "pending"
    running = a_waiting_job(live_attempt=1, attempts=1)
    assert shown_state(running, "running") == "running"
    assert shown_state(a_waiting_job(), "succeeded") == "queued"
