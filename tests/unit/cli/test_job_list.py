"""The document of many jobs: what `job_facts` says of each, made once for those that are alike."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.facts import job_list
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_common.text.wire import to_duration, to_timestamp


def _job(number: int) -> job_pb2.Job:
    job = job_pb2.Job(
        job_id=str(number), name=f'100% "n{number}"', user="ä", state=job_pb2.JOB_STATE_QUEUED,
        submit_time=to_timestamp(1_700_000_000.25 + number), wait_code="resources",
        run_duration=to_duration(0.0),
    )  # fmt: skip
    job.resources.gpu_count = 2
    job.queue_time.CopyFrom(job.submit_time)
    return job


def _various() -> list[job_pb2.Job]:
    jobs = [_job(number) for number in range(8)]
    jobs[1].array_task.array_id, jobs[1].array_task.index = "1", 4
    jobs[2].array_task.array_id, jobs[2].array_task.index = "1", 0
    jobs[3].start_estimate.likely_time.CopyFrom(to_timestamp(1_700_000_999.0))
    jobs[4].run_estimate.detail = "50 %s of \x1b[31m it\n"
    jobs[5].ClearField("queue_time")
    jobs[5].ClearField("submit_time")
    jobs[6] = job_pb2.Job(redacted=True, job_id="6", state=job_pb2.JOB_STATE_QUEUED)
    jobs[7].attempt_state = job_pb2.ATTEMPT_STATE_RUNNING
    jobs[7].run_duration.CopyFrom(to_duration(12.5))
    return jobs


def test_the_document_is_that_of_the_facts_of_each_job() -> None:
    jobs = _various() * 2
    assert job_list.jobs_document(jobs, 7) == document(
        {"jobs": [job_facts(job) for job in jobs], "total": 7}
    )
    assert job_list.jobs_document([], 0) == document({"jobs": [], "total": 0})


def test_the_facts_of_jobs_that_are_alike_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(job: job_pb2.Job) -> dict[str, object]:
        asked.append(job.job_id)
        return job_facts(job)

    monkeypatch.setattr(job_list, "job_facts", noted)
    job_list.jobs_document([_job(number) for number in range(1000)], 1000)
    assert asked == ["0"]


def test_shapes_without_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "MOST_SHAPES", 2)
    jobs = _various()
    assert job_list.jobs_document(jobs, 9) == document(
        {"jobs": [job_facts(job) for job in jobs], "total": 9}
    )
