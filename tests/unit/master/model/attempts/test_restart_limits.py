"""Each cause of a restart has a count, and may have a limit of its own."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_common.job_fields.reading.words import RESTART_CAUSES
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import (
    Checkpoint,
    EndReason,
    HoldKind,
    Job,
    JobState,
    RestartCause,
    RestartCounts,
    RestartLimits,
    RunRules,
)
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from support.builders import a_waiting_job, an_attempt

NODE = NodeId("n1")
ERROR = {"exit_code": 3}
ENDS: dict[str, dict[str, Any]] = {
    "error": ERROR,
    "memory": {"exit_code": 137, "oom_killed": True},
    "node": {"lost": True},
    "gpu": ERROR,
    "preemption": {"signal": 15},
    "start": {"start_error": "no such directory"},
}


def ended(cause: str, **fields: Any) -> Attempt:
    """An attempt of one rank that is over, by this cause."""
    known: dict[str, Any] = {"state": AttemptState.RUNNING, "started_time_s": 10.0}
    if cause == "preemption":
        known |= {"state": AttemptState.PAUSING, "stop_cause": StopCause.PREEMPT}
        known["notice_time_s"] = 50.0
    if cause == "start":
        known = {"state": AttemptState.STARTING, "started_time_s": None}
    state = known.pop("state")
    attempt = an_attempt(slots=[("n1", 0b1)], state=state)._replace(**{**known, **fields})
    return gang.heard(attempt, 0, RankStatus(NODE, RankPhase.EXITED, **ENDS[cause]))


def a_job(count: int = 0, cause: str = "error", **limits: int) -> Job:
    rules = RunRules(limits=RestartLimits(**limits))
    return a_waiting_job(1, 1, rules=rules, restart_counts=RestartCounts(**{cause: count}))


def follows(cause: str, job: Job, **fields: Any) -> job_steps.JobEvent:
    attempt = ended(cause, **fields)
    end = gang.verdict(attempt, job.rules)
    used = gang.usage(attempt, end, job, 100.0)
    limited = cause == "gpu" and job.rules.limits.gpu is not None
    event = gang.consequence(attempt, end, job, used, NODE if limited else None)
    assert event is not None
    return event


def after(job: Job, event: job_steps.JobEvent) -> Job:
    live = job._replace(live_attempt=1, queued_since_s=None)
    return job_steps.step(live, event, at_s=100.0)


@pytest.mark.parametrize("cause", ENDS)
def test_a_cause_restarts_its_job_as_often_as_its_limit_says(cause: str) -> None:
    job = a_job(4, cause, **{cause: 5})
    event = follows(cause, job)
    assert isinstance(event, job_steps.Requeued)
    again = after(job, event)
    assert again.state is JobState.QUEUED
    assert again.restart_counts == RestartCounts(**{cause: 5})
    assert (again.restarts, again.infra_failures) == (0, 0), "it counts in no other limit"


@pytest.mark.parametrize("cause", ENDS)
def test_the_end_after_that_names_the_cause_the_count_and_the_limit(cause: str) -> None:
    job = a_job(5, cause, **{cause: 5})
    told = after(job, follows(cause, job))
    own = cause in ("error", "memory")
    assert told.state is (JobState.FAILED if own else JobState.HELD)
    assert told.hold is (None if own else HoldKind.POISON)
    assert told.hold_reason == f"cause {cause}: 5 of 5 restarts are used up"


@pytest.mark.parametrize("cause", ENDS)
def test_another_cause_uses_nothing_of_a_limit(cause: str) -> None:
    other = "node" if cause != "node" else "start"
    job = a_job(9, cause, **{cause: 9})
    assert isinstance(follows(other, job), job_steps.Requeued)


def test_without_a_limit_all_is_as_before() -> None:
    assert isinstance(follows("error", a_job()), job_steps.Failed)
    assert after(a_job(), follows("error", a_job())).hold_reason == ""
    assert isinstance(follows("gpu", a_job()), job_steps.Failed), "it is an error of its own"
    assert isinstance(follows("preemption", a_job(50, "preemption")), job_steps.Requeued)
    twice = a_job()._replace(infra_failures=2)
    for cause in ("node", "start"):
        held = after(twice, follows(cause, twice))
        assert held.hold_reason == {"node": "node_lost", "start": "start_failed"}[cause]


def test_a_number_for_all_failures_of_the_program_leaves_out_causes_with_their_own() -> None:
    rules = RunRules(max_restarts=1, limits=RestartLimits(memory=2))
    job = a_waiting_job(1, 1, rules=rules)
    for cause in ("memory", "memory", "error"):
        event = follows(cause, job)
        assert isinstance(event, job_steps.Requeued)
        job = after(job, event)
    assert (job.restarts, job.restart_counts) == (1, RestartCounts(error=1, memory=2))
    failed = follows("error", job)
    assert isinstance(failed, job_steps.Failed)
    assert failed.detail == "cause error: 1 of 1 restarts are used up"
    assert isinstance(follows("memory", job), job_steps.Failed)


def test_a_job_of_before_goes_on_with_the_restarts_that_it_has_used() -> None:
    job = a_waiting_job(1, 1, rules=RunRules(max_restarts=2), restarts=2)
    assert isinstance(follows("error", job), job_steps.Failed)


@pytest.mark.parametrize("cause", ["node", "gpu"])
def test_an_attempt_that_got_on_forgives_failures_of_the_cluster(cause: str) -> None:
    job = a_job(5, cause, **{cause: 5})
    event = follows(cause, job, checkpoint=Checkpoint("/c", 3, 40.0, 1))
    assert isinstance(event, job_steps.Requeued)
    assert after(job, event).restart_counts == RestartCounts(**{cause: 1})


def test_a_release_gives_all_chances_again_but_those_of_the_program() -> None:
    counts = RestartCounts(error=1, memory=1, node=1, gpu=1, preemption=1, start=1)
    held = a_waiting_job(
        1, 1, state=JobState.HELD, hold=HoldKind.POISON, queued_since_s=None, restart_counts=counts
    )
    released = job_steps.step(held, job_steps.Released(), at_s=1.0)
    assert released.restart_counts == RestartCounts(error=1, memory=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"stop_cause": StopCause.DRAIN},
        {"stop_cause": StopCause.PAUSE},
        {"stop_cause": StopCause.REQUEUE},
        {"regrant": Allocation(())},
    ],
)
def test_only_a_stop_for_others_is_a_preemption(fields: dict[str, Any]) -> None:
    event = follows("preemption", a_job(0, "preemption", preemption=0), **fields)
    assert isinstance(event, job_steps.Requeued)
    assert event.cause is None


def test_a_failure_on_an_ailing_gpu_keeps_its_job_off_the_node() -> None:
    job = a_job(0, "gpu", gpu=1)
    again = after(job, follows("gpu", job))
    assert (again.failed_nodes, again.end_reason) == ((NODE,), EndReason.USER_ERROR)


def test_the_words_of_specs_are_the_causes() -> None:
    causes = tuple(cause.value for cause in RestartCause)
    assert causes == RESTART_CAUSES == RestartLimits._fields == RestartCounts._fields
