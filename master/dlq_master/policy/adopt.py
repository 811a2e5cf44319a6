"""Another policy takes over a living cluster: the properties that its jobs keep, and their new
places.

Everything that has happened to a job stays. Properties that only the old policy gave a job go.
These are its place in line, a level that is gone, a head start, and a promise where nothing is
promised. A running job goes on until its term ends. Then the new policy judges it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.frozen import freeze, thaw
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_changes import at_position
from dlq_master.model.order.keys import STARTED_BASE
from dlq_master.model.order.order import Discipline, Ordering, Positions
from dlq_master.policy.policy import Policy
from dlq_master.policy.promise.capacity.rules import Promises


class Adopted(NamedTuple):
    """The cluster under its new policy, which shares what was learned with the old one: drop
    that.
    """

    cluster: Cluster
    changed: tuple[Job, ...]  # jobs that have another value now


def adopt(cluster: Cluster, before: Ordering | None, policy: Policy) -> Adopted:
    """Jobs, attempts and nodes as they are, in order for `policy`. Costs O(jobs log jobs).

    `before`: the ordering under which the jobs have their positions; None: nobody knows it.
    """
    positions = Positions()
    same = before is not None and before.discipline is policy.ordering.discipline
    living = [job for job in cluster.jobs.values() if not job.ended]
    for job in living if same else ():
        positions.seen(job.sequence)
    placed = _kept(living, policy, positions) if same else _numbered(living, policy, positions)
    after = {job.job_id: _cleared(job, policy) for job in placed}
    jobs = tuple([after.get(job_id, job) for job_id, job in cluster.jobs.items()])
    frozen = freeze(cluster)._replace(
        thresholds=policy.ordering.thresholds,
        jobs=jobs,
        slot=-1 if policy.promises is None else cluster.slot,
        packing=None,
        positions=positions,
        unsettled=(),
        history=cluster.history.under(policy.ordering.refresh),
    )
    changed = [job for job_id, job in after.items() if job != cluster.jobs[job_id]]
    adopted = thaw(frozen, policy.ordering)
    adopted.relearn()
    adopted.migrations, adopted.ran = cluster.migrations, cluster.ran
    return Adopted(adopted, tuple(changed))


def endangered(cluster: Cluster, before: Promises | None, after: Promises | None) -> list[JobId]:
    """Jobs whose promise the policy would drop, or plans for with less than it was made with."""
    if before is None or (after is not None and _keeps(before, after)):
        return []
    return sorted(cluster.promised)


def dropped(jobs: Iterable[Job], policy: Policy) -> list[JobId]:
    """Of these jobs, those whose promise ends with this policy."""
    if policy.promises is not None:
        return []
    return sorted(job.job_id for job in jobs if not job.ended and job.promised is not None)


def on_trial(cluster: Cluster) -> list[JobId]:
    """Jobs that run only to be measured, on fewer GPUs than they ask for: they cannot be taken
    over.
    """
    running = (cluster.jobs[key.job_id] for key in cluster.attempts)
    return sorted(job.job_id for job in running if job.reduced)


def _keeps(before: Promises, after: Promises) -> bool:
    """Whether deadlines are counted alike. The capacity left to best effort and trials limits new
    promises only.
    """
    return (before.whole_leases, before.quotas) == (after.whole_leases, after.quotas)


def _kept(living: list[Job], policy: Policy, positions: Positions) -> list[Job]:
    """Where they stood; a head start is worth nothing where nobody gets one."""
    if policy.ordering.promotes:
        return living
    ahead = sorted([job for job in living if job.promoted or job.sequence < STARTED_BASE], key=_at)
    moved = {}
    for job in reversed(ahead):
        runs = job.live_attempt is not None
        place = positions.started() if runs else positions.head()
        moved[job.job_id] = at_position(job, place)
    return [moved.get(job.job_id, job) for job in living]


def _numbered(living: list[Job], policy: Policy, positions: Positions) -> list[Job]:
    """In the order in which they came; for disciplines that ask for it, running jobs first."""
    discipline = policy.ordering.discipline
    ahead: list[Job] = []
    if discipline is Discipline.REQUEUE:
        ahead = sorted([job for job in living if job.live_attempt is not None], key=_start)
    elif discipline is Discipline.FIRST_START:
        ahead = sorted([job for job in living if job.first_start_time_s is not None], key=_first)
    known = {job.job_id for job in ahead}
    behind = sorted([job for job in living if job.job_id not in known], key=_arrival)
    placed = [at_position(job, positions.started()) for job in ahead]
    return placed + [at_position(job, positions.tail()) for job in behind]


def _cleared(job: Job, policy: Policy) -> Job:
    """Without what nobody asks about any more."""
    last = policy.ordering.levels - 1
    promoted = job.promoted and policy.ordering.promotes
    if job.level > last or promoted is not job.promoted:
        job = job._replace(level=min(job.level, last), promoted=promoted)
    if policy.promises is None and (job.verdict or job.slots or job.band is not Band.SPOT):
        job = job._replace(
            band=Band.SPOT, slots=(), promised=None, verdict="", margin=None, pause=None, moves=0,
            gpu_type_promised="",
        )  # fmt: skip
    if not policy.by_team and job.band in (Band.BORROW, Band.LIMIT):
        job = job._replace(band=Band.SPOT)
    if policy.profiling is None and job.trials:
        job = job._replace(trials=(), band=Band.SPOT)
    return job


def _at(job: Job) -> int:
    return job.sequence


def _start(job: Job) -> tuple[float, int]:
    return job.start_time_s or job.submit_time_s, job.job_id


def _first(job: Job) -> tuple[float, int]:
    return job.first_start_time_s or job.submit_time_s, job.job_id


def _arrival(job: Job) -> tuple[float, int]:
    return job.submit_time_s, job.job_id
