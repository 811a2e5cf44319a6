"""Whether who is promised a deadline may have more GPUs than it is promised: its promise counts on
its base alone.

Another size costs it an interruption, and so does the way back, which others may ask for at any
boundary. Its use of slots that are not planned for it concerns no other job. The plan counts on
nothing that it does there, and charges it a start where its slots begin. In its own slots both have
to come out of what its plan leaves over. Once it has grown every plan keeps the way back for it
(`reading.slo_job`). It is taken to run no slower on more GPUs than on its base.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.capacity.grids import slot_s
from dlq_master.policy.promise.capacity.leases import Grid
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.slots.plan import keeps_promise
from dlq_master.policy.promise.verdicts.reading import kept_plan, margin, slo_job


def may_grow(cluster: Cluster, job: Job, rules: Promises) -> bool:
    """Whether its kept plan keeps its promise even if it stops now for a size beyond its base, and
    once more later.
    """
    origin = cluster.slot
    if job.promised is None or not job.planned(origin):
        return True
    own = slo_job(cluster, job, origin, margin(cluster, rules))
    stopped = own._replace(running=False, work_s=own.work_s + own.resume_s)
    planned = kept_plan([job], origin).segments.get(own.key, ())
    grid = Grid(term_s=slot_s(cluster), capacity=(1,), whole_leases=rules.whole_leases)
    return keeps_promise(stopped, planned, grid)


def tied(cluster: Cluster, job_ids: Iterable[JobId], rules: Promises) -> frozenset[JobId]:
    """Those of these elastic jobs that may be given no size beyond their base but the one that they
    have.
    """
    jobs = cluster.jobs
    return frozenset(
        [
            job_id
            for job_id in job_ids
            if cluster.elastic(job := jobs[job_id]) and not may_grow(cluster, job, rules)
        ]
    )
