"""Answers as plain values: everything about a job, why it does not run, and all promises."""

from __future__ import annotations

from dlq.v1 import job_service_pb2, promise_service_pb2
from dlq_cli.facts.common import Facts, described, instant
from dlq_cli.facts.job import (
    attempt_facts,
    hook_facts,
    job_facts,
    reason_facts,
    spec_facts,
    traffic_facts,
    wait_facts,
)


def whole_job_facts(answer: job_service_pb2.GetJobResponse) -> Facts:
    """A job, its spec, its traffic and its attempts, oldest first."""
    return {
        **job_facts(answer.job),
        "spec": spec_facts(answer.spec),
        **hook_facts(answer.spec.hook_notes),
        "traffic": traffic_facts(answer.traffic),
        "attempts": [attempt_facts(attempt) for attempt in answer.attempts],
    }


def explained_facts(answer: job_service_pb2.ExplainJobResponse) -> Facts:
    """A job, every reason why it does not run, and how its waiting came about."""
    ahead = answer.jobs_ahead_count if answer.HasField("jobs_ahead_count") else None
    return {
        **job_facts(answer.job),
        "reasons": [reason_facts(one) for one in answer.reasons],
        "jobs_ahead_count": ahead,
        "waits": [wait_facts(one) for one in answer.waits],
        "traffic": traffic_facts(answer.traffic),
    }


_record_facts = described(
    promise_service_pb2.PromiseRecord, "team? kept_count! missed_count! broken_count!"
)


def promises_facts(answer: promise_service_pb2.ListPromisesResponse) -> Facts:
    """Jobs with deadlines, those in danger, those that were not kept, and the record by team."""
    since = answer.record_from_time if answer.HasField("record_from_time") else None
    return {
        "jobs": [job_facts(job) for job in answer.jobs],
        "next_cursor": answer.next_page_token or None,
        "endangered_job_ids": [job.job_id for job in answer.endangered_jobs],
        "missed_jobs": [job_facts(job) for job in answer.missed_jobs],
        "records": [_record_facts(one) for one in answer.records],
        "record_from_time": None if since is None else instant(since),
        "promised_count": answer.promised_count,
        "endangered_count": answer.endangered_count,
        "kept_target": answer.kept_target if answer.HasField("kept_target") else None,
    }
