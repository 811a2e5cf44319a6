"""Jobs with deadlines are found without a look at others, and outcomes are counted by one rule."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_master.control.read_model import promise_index
from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.control.read_model.promise_index import PromiseIndex, PromiseOutcome, outcome_of
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import strict
from support.stored_values import a_job


def due(number: int = 1, **changes: Any) -> Job:
    """A job that is due 1,000 seconds after it came."""
    return a_job(number, steps=strict(1000.0), submit_time_s=0.0, **changes)


def over(number: int, end_s: float, state: JobState = JobState.COMPLETED, **changes: Any) -> Job:
    return due(number, state=state, end_time_s=end_s, **changes)


def index_of(*jobs: Job) -> PromiseIndex:
    index = PromiseIndex()
    for job in jobs:
        index.change(job)
    return index


def test_living_jobs_are_found_by_user_and_go_with_their_deadline_or_their_end() -> None:
    index = index_of(due(1), due(2, user="bob", promised=0), a_job(3))
    assert index.living(EVERYBODY, 0) == [1, 2]
    assert index.living("bob", 0) == [2]
    assert index.living(EVERYBODY, 1) == [2]
    assert (index.promised_count(EVERYBODY), index.promised_count("alice")) == (1, 0)
    index.change(a_job(1))
    index.change(over(2, 900.0, user="bob", promised=0))
    assert index.living(EVERYBODY, 0) == []
    assert index.promised_count("bob") == 0


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (over(1, 900.0, promised=0), PromiseOutcome.KEPT),
        (over(1, 1001.0, promised=0), PromiseOutcome.MISSED),
        (over(1, 1001.0, JobState.FAILED, promised=0), PromiseOutcome.MISSED),
        (over(1, 900.0, JobState.FAILED, promised=0), None),
        (over(1, 900.0, JobState.CANCELLED, promised=0), None),
        (over(1, 900.0, verdict="broken"), PromiseOutcome.BROKEN),
        (over(1, 900.0, verdict="overrun"), PromiseOutcome.BROKEN),
        (over(1, 900.0, verdict="reach"), None),
        (due(1, promised=0), None),
    ],
)
def test_an_end_counts_by_one_rule(job: Job, outcome: PromiseOutcome | None) -> None:
    assert outcome_of(job) is outcome


def test_the_last_ends_are_kept_and_it_says_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promise_index, "MOST_ENDED", 2)
    index = index_of(*(over(number, 100.0 * number, promised=0) for number in (1, 2, 3)))
    assert [job.job_id for job, _ in index.ended()] == [3, 2]
    assert index.dropped_s == 100.0


def test_a_change_of_an_ended_job_does_not_count_twice() -> None:
    job = over(1, 900.0, promised=0)
    index = index_of(job, job._replace(lost_gpu_s=1.0))
    assert len(list(index.ended())) == 1
