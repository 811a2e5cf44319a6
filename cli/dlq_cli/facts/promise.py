"""A job's deadlines, and its promise, as plain values."""

from __future__ import annotations

from collections.abc import Iterable

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts, instant, seconds


def promise_facts(promise: job_pb2.Promise) -> Facts:
    """The promise of a job, and the offers in its place."""
    has = promise.HasField
    return {
        "deadlines": deadline_facts(promise.deadlines),
        "state": promise.state,
        "ground": promise.ground or None,
        "detail": promise.detail,
        "guaranteed_index": promise.guaranteed_index if has("guaranteed_index") else None,
        "earliest_time": instant(promise.earliest_time) if has("earliest_time") else None,
        "fix": promise.fix or None,
        "fix_gpu_count": promise.fix_gpu_count if has("fix_gpu_count") else None,
        "fix_time": instant(promise.fix_time) if has("fix_time") else None,
        "slack_s": seconds(promise.slack_duration) if has("slack_duration") else None,
        "work_s": seconds(promise.work_duration) if has("work_duration") else None,
        "on_miss": promise.on_miss,
        "risk": promise.risk or None,
        "risk_time": instant(promise.risk_time) if has("risk_time") else None,
        "saving_unknown": promise.saving_unknown,
    }


def deadline_facts(deadlines: Iterable[job_pb2.DeadlineStep]) -> list[Facts]:
    """Each deadline with the reward of an end by then."""
    return [
        {
            "due_time": instant(step.due_time) if step.HasField("due_time") else None,
            "due_s": seconds(step.due_duration) if step.HasField("due_duration") else None,
            "reward": step.reward,
        }
        for step in deadlines
    ]
