"""What plans, people and reports do to a cluster's values."""

from __future__ import annotations

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState, RankStatus
from dlq_master.model.cluster import drive
from dlq_master.model.ids import AttemptKey, Fence, JobId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import Checkpoint, EndReason, JobState, RunRules
from dlq_master.model.plan import Start
from dlq_master.model.transitions import StopCause
from support.builders import World, a_job
from support.validate import validate


def words(happened: list[drive.Happened]) -> list[str]:
    return [type(one.event).__name__ for one in happened]


def test_a_start_makes_an_attempt_with_a_fence_of_its_own() -> None:
    world = World(nodes=2).submit(a_job(1, 16)).settle_moves()
    (placed,) = drive.apply(world.cluster, world.plan(), 5.0, epoch=7)
    attempt = world.attempt(1)
    assert attempt.key == AttemptKey(JobId(1), 1)
    assert (attempt.epoch, attempt.fence) == (7, Fence(7, 1))
    assert (attempt.state, attempt.assigned_time_s) == (AttemptState.ASSIGNED, 5.0)
    assert attempt.ranks == (
        RankStatus(attempt.ranks[0].node_id),
        RankStatus(attempt.ranks[1].node_id),
    )
    assert attempt.lease.hold_s == world.cluster.terms.hold_s
    assert isinstance(placed.change, Start)
    assert (placed.event, placed.job_id, placed.attempt) == (job_steps.Placed(attempt=1), 1, 1)


def test_the_next_attempt_resumes_from_the_promoted_checkpoint() -> None:
    world = World().submit(a_job(1, rules=RunRules(hold_s=60.0))).decide()
    checkpoint = Checkpoint("/c/1/1/step-9", 9, 4.0, 1)
    drive.step_job(world.cluster, JobId(1), job_steps.Saved(checkpoint=checkpoint), 4.0)
    world.lose(1).decide()
    attempt = world.attempt(1)
    assert (attempt.key.number, attempt.resume_from) == (2, checkpoint)
    assert attempt.lease.hold_s == 60.0
    assert world.job(1).infra_failures == 1


def test_cancelling_stops_the_attempt_which_then_closes_the_books() -> None:
    world = World().submit(a_job(1, 4)).decide()
    happened = drive.step_job(world.cluster, JobId(1), job_steps.Cancelled(), 11.0)
    assert words(happened) == ["Cancelled", "StopRequested"]
    attempt = world.attempt(1)
    assert (attempt.state, attempt.stop_cause) == (AttemptState.PAUSING, StopCause.CANCEL)
    assert (attempt.notice_time_s, attempt.grace_s) == (11.0, 300.0)
    ended = drive.step_attempt(world.cluster, attempt.key, attempt_steps.Cancelled(), 21.0)
    assert words(ended) == ["Cancelled"]
    job = world.job(1)
    assert (job.state, job.live_attempt, job.total_gpu_s) == (JobState.CANCELLED, None, 80.0)
    assert not world.cluster.attempts
    validate(world.cluster)


def test_a_pause_keeps_the_job_and_a_resume_queues_it_again() -> None:
    world = World().submit(a_job(1)).decide().pause(1).leave(1).decide()
    assert (world.job(1).state, world.running) == (JobState.HELD, [])
    drive.step_job(world.cluster, JobId(1), job_steps.Released(), 9.0)
    assert world.decide().running == [1]


def test_running_starts_the_job_once_and_its_end_ends_it() -> None:
    world = World().submit(a_job(1)).settle_moves()
    drive.apply(world.cluster, world.plan(), 5.0, epoch=1)
    key = world.attempt(1).key
    told = drive.step_attempt(world.cluster, key, attempt_steps.Running(), 6.0)
    assert words(told) == ["Running", "Ran"]
    assert world.job(1).first_start_time_s == 6.0
    told = drive.step_attempt(world.cluster, key, attempt_steps.Succeeded(), 8.0)
    assert words(told) == ["Succeeded", "Completed"]
    assert world.job(1).end_reason is EndReason.COMPLETED


def test_a_job_that_loses_its_nodes_again_and_again_is_held_as_poison() -> None:
    world = World().submit(a_job(1)).decide()
    for _ in range(3):
        world.lose(1).decide()
    assert (world.job(1).state, world.job(1).hold_reason) == (JobState.HELD, "node_lost")
    assert world.running == []


def test_a_job_is_submitted_once() -> None:
    world = World().submit(a_job(1))
    with pytest.raises(ValueError, match="job 1 exists already"):
        world.submit(a_job(1))


def test_free_preemption_ends_starts_and_frees_in_one_plan() -> None:
    world = World("tiresias-las", preempt="free", thresholds="80").submit(a_job(1, 8)).at(0.0)
    world.submit(a_job(2, 8)).at(10.0)
    job = world.job(1)
    assert (job.preemptions, job.attained_gpu_s, job.end_reason) == (1, 80.0, EndReason.PREEMPTED)
    assert job.waiting
    assert world.running == [2]
