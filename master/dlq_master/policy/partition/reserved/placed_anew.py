"""Best-effort work that runs, and would run faster elsewhere (Chronus, section 3.4.2).

Chronus places the jobs of its best-effort queue in each cycle. Of these a job goes on where it is
unless the best arrangement of all has another place for it. Then it stops at the end of its term
and starts again with those that start there. It pays for that as for any other stop.
"""

from __future__ import annotations

from collections.abc import Collection

from dlq_master.model.attempts.attempt import ACTIVE
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.whole.batch import PlacementBatch

_BEST_EFFORT = (Band.SPOT, Band.FILL)


def placed_anew(
    cluster: Cluster, placement: Placement, ending: Collection[AttemptKey]
) -> dict[AttemptKey, str]:
    """Of the attempts whose terms end those that stop to be placed elsewhere, and what is gained.

    None where the placement does not arrange jobs as a whole.
    """
    if placement.arranges is None or not ending:
        return {}
    capacity = cluster.capacity
    capacity.ready()
    held: dict[JobId, Parts] = {}
    keys: dict[JobId, AttemptKey] = {}
    for key in ending:
        job, attempt = cluster.jobs[key.job_id], cluster.attempts[key]
        if job.band not in _BEST_EFFORT or not job.keeps_work or attempt.state not in ACTIVE:
            continue
        parts = [*capacity.parts(attempt.lease.allocation).values()]
        if len(parts) == 1:
            held[job.job_id], keys[job.job_id] = tuple(parts[0]), key
    moves = PlacementBatch(cluster, placement).anew(capacity.free, held)
    return {keys[job_id]: told for job_id, told in moves.items()}
