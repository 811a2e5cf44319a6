"""Loans as JSON."""

from __future__ import annotations

from dlq.v1 import loan_service_pb2 as wire
from dlq_cli.facts.common import Facts, instant, seconds


def server_facts(server: wire.LoanServer) -> Facts:
    """A server of the inference side."""
    return {
        "node_id": server.node_id,
        "state": server.state,
        "gpu_count": server.gpu_count,
        "attempts": list(server.attempts),
        "detail": server.detail,
        "since_time": instant(server.since_time) if server.HasField("since_time") else None,
        "actor": server.actor or None,
    }


def controller_facts(told: wire.LoanController) -> Facts:
    """The controller that lends servers by load."""
    return {
        "source": told.source,
        "busy_share": told.busy_share if told.HasField("busy_share") else None,
        "load_time": instant(told.load_time) if told.HasField("load_time") else None,
        "lent_count": told.lent_count,
        "fault": told.fault or None,
        "off_by": told.off_by or None,
        "off_time": instant(told.off_time) if told.HasField("off_time") else None,
    }


def plan_facts(plan: wire.ReclaimPlan) -> Facts:
    """The effects of a reclaim, planned or done; a done reclaim has no token."""
    return {
        "token": plan.token or None,
        "node_ids": list(plan.node_ids),
        "promised_seconds": seconds(plan.promised_duration),
        "proven": plan.proven,
        "too_long": plan.too_long,
        "jobs": [_job_facts(job) for job in plan.jobs],
    }


def _job_facts(job: wire.ReclaimedJob) -> Facts:
    return {
        "job_id": job.job_id,
        "user": job.user,
        "name": job.name,
        "action": job.action,
        "gpu_count": job.gpu_count,
        "kept_gpu_count": job.kept_gpu_count,
        "grace_seconds": seconds(job.grace_duration),
        "lost_seconds": seconds(job.lost_duration),
        "killed": job.killed,
        "deadline_time": instant(job.deadline_time) if job.HasField("deadline_time") else None,
    }
