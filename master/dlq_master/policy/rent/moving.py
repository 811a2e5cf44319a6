"""Jobs that run on own nodes on fewer GPUs than they could use, and would be better off on a rented
machine.

The cost rule of GPU as a Service decides over all jobs, and what runs may be given another
configuration. Here only who may be resized anyway is moved, and only to a machine: it saves, leaves
its GPUs to others, and goes on there. The price of the move is one more save and start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.verdicts.reading import pause_of, worked_s
from dlq_master.policy.rent.line import may_rent

if TYPE_CHECKING:  # numpy comes with these, and a master starts without
    from dlq_master.policy.priced.catalogue import Floats
    from dlq_master.policy.rent.times import MachineRunTimes

Moving = Mapping[AttemptKey, Job]


def movable(cluster: Cluster, now_s: float) -> dict[AttemptKey, Job]:
    """Of the jobs that run on own nodes that take work, those that might go on elsewhere with other
    numbers of GPUs. Each counts as if it were stopped and waited now, in the order in which they
    came.
    """
    elsewhere = cluster.capacity.closed | set(cluster.own.foreign)
    found = {}
    for key, attempt in cluster.attempts.items():
        job = cluster.jobs[key.job_id]
        sized = job.request.sizes and not job.trials and cluster.elastic(job)
        able = sized and may_rent(job) and _runs_on(attempt)
        if able and elsewhere.isdisjoint(attempt.lease.allocation.node_ids):
            found[key] = job._replace(worked_s=worked_s(cluster, job, attempt, now_s))
    return dict(sorted(found.items()))


def with_moving(
    cluster: Cluster,
    now_s: float,
    wanting: Sequence[Job],
    moving: Moving,
    outranked: Collection[AttemptKey],
    times: MachineRunTimes,
    ends: dict[int, float],
) -> tuple[list[Job], list[Floats], dict[int, float]]:
    """The jobs that wait and those that might move, with the rest of each on machines. A moving job
    has its save and its start left as well. Also the end of each on the own nodes. A running job
    ends there no later than on its present GPUs, unless it gives way to another.
    """
    jobs = [*wanting, *moving.values()]
    lefts = times.left_s(jobs)
    for n, (key, job) in enumerate(moving.items(), len(wanting)):
        pause = pause_of(cluster, job)
        lefts[n] = lefts[n] + pause.save_s + pause.resume_s
        if key not in outranked:
            width = cluster.attempts[key].lease.allocation.width
            ends[job.job_id] = min(ends[job.job_id], now_s + times.on_own_s(job, width))
    return jobs, lefts, ends


def _runs_on(attempt: Attempt) -> bool:
    """Nothing else is to become of it just now."""
    untouched = attempt.stop_cause is None and attempt.regrant is None and attempt.resize is None
    return untouched and attempt.state is AttemptState.RUNNING
