"""The GPU types on which a job may be promised its deadline.

A promise is for GPUs of one type. Its slots are counted there, and its job gets no other type from
then on. Without declared speeds of types, an estimate must hold on every type that the job may get.
A user's estimate is taken so; a measured one holds on its own type only. Declared speeds convert
both (`TypeSpeeds`).
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import Source
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Allocation
from dlq_master.policy.promise.capacity.grids import home_type, own_pool, type_of

_TOLD = (None, Source.DECLARED)


def types_for(cluster: Cluster, job: Job) -> list[str]:
    """The types on which its deadlines may be promised, in the order of trial.

    Empty: nothing can be promised, since its run time on these types is unknown.
    """
    if job.gpu_type_promised or len(job.request.gpu_types or ()) == 1 or cluster.own.types < 2:
        return [type_of(cluster, job)]
    shape = job.request.shape
    wanted = [
        kind
        for kind in job.request.gpu_types or _home_first(cluster)
        if own_pool(cluster, kind).widths and cluster.own_holds(shape.on_type(kind))
    ]
    held = _held(cluster, job)
    if held is not None:  # a plan has it go on where it is
        return [kind for kind in wanted if held == {kind}]
    if len(wanted) > 1 and job.basis.source not in _TOLD and not cluster.speeds.declared:
        return []
    return wanted or [type_of(cluster, job)]


def on_type(job: Job, gpu_type: str) -> Job:
    """The job as if it were promised GPUs of this type."""
    return job._replace(gpu_type_promised=gpu_type)


def free_gpus(cluster: Cluster, gpu_type: str) -> int:
    """The number of free own GPUs of this type."""
    cluster.capacity.ready()
    free = cluster.capacity.free.get(gpu_type)
    return 0 if free is None else free.without(cluster.own.foreign).total


def _home_first(cluster: Cluster) -> Iterable[str]:
    """All types in order, the cluster's most frequent own type first."""
    home = home_type(cluster)
    return sorted(cluster.capacity.gpu_types, key=lambda kind: (kind != home, kind))


def _held(cluster: Cluster, job: Job) -> set[str] | None:
    """The types of the GPUs that a job has and goes on with; None: it has none."""
    attempt = cluster.live_attempt(job)
    allocation: Allocation | None
    if attempt is None:
        allocation = job.regrant
    elif attempt.state is AttemptState.PAUSING:
        allocation = attempt.regrant
    else:
        allocation = attempt.lease.allocation
    return None if allocation is None else {*cluster.capacity.parts(allocation)}
