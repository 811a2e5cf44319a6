"""Chooses the jobs that leave reserved nodes at the beginning of a slot.

The plan counts no reserved node in a slot that meets the reservation, so there is room elsewhere
for everybody whose slot it is. A job that went only when the reservation begins would lose a pause
that its plan lacks. The GPUs elsewhere would be others' until their terms end.
"""

from __future__ import annotations

from collections.abc import Collection

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.policy.partition.reserved.slot_holders import holding, reserved_now


def evacuated(cluster: Cluster, ending: Collection[AttemptKey]) -> dict[AttemptKey, JobId]:
    """Of the jobs whose slot it is and whose terms end, those on reserved nodes: each goes for its
    own sake.
    """
    seated = holding(cluster) if ending else []
    away = reserved_now(cluster) if seated else frozenset()
    found: dict[AttemptKey, JobId] = {}
    for job_id in seated if away else ():
        attempt = cluster.live_attempt(cluster.jobs[job_id])
        if attempt is None or attempt.key not in ending:
            continue
        if not away.isdisjoint(attempt.lease.allocation.node_ids):
            found[attempt.key] = job_id
    return found
