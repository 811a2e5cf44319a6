"""The plan that brings a job to a machine that was rented for it."""

from __future__ import annotations

from math import inf

from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.plan import Plan, Revoke, Start
from dlq_master.model.resources import Allocation, Slot, indices, mask_of
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.rent.line import free_on
from dlq_master.policy.transit.lease_kinds import kind_of_lease


def start_on(
    cluster: Cluster, job: Job, node: Node, gpus: int, pool: str, now_s: float, *, grid: bool
) -> Plan:
    """Starts a waiting job on the first `gpus` free GPUs of the machine.

    `grid`: leases have terms. The plan is empty if the job does not wait or too few GPUs are free.
    """
    free = list(indices(free_on(cluster, node)))[:gpus]
    if not job.waiting or len(free) < gpus:
        return Plan()
    kind = kind_of_lease()
    end_s = first_term_end_s(now_s, kind, cluster.terms, cluster.saves.lead_s) if grid else inf
    allocation = Allocation((Slot(node.node_id, mask_of(free)),))
    return Plan((Start(job.job_id, allocation, kind, end_s, _reason(pool), rented=True),))


def leave_for(cluster: Cluster, job: Job, pool: str) -> Plan:
    """Stops a running job, which saves and then starts on a machine of the pool."""
    if job.live_key is None:
        return Plan()
    grace_s = stop_grace_s(cluster.attempts[job.live_key], job)
    return Plan((Revoke(job.live_key, StopCause.PREEMPT, grace_s, _reason(pool)),))


def _reason(pool: str) -> Reason:
    return Reason(ReasonCode.RENTED, detail=pool)
