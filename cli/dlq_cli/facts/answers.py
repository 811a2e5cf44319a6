"""Answers about one job as plain values: everything about it, and why it does not run."""

from __future__ import annotations

from dlq.v1 import job_service_pb2
from dlq_cli.facts.common import Facts
from dlq_cli.facts.job import (
    attempt_facts,
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
