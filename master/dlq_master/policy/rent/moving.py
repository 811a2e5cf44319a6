"""Jobs that run on own nodes on fewer GPUs than they could use, and would be better off on a rented
machine.

The cost rule of GPU as a Service decides over all jobs, and what runs may be given another
configuration. Here only who may be resized anyway is moved, and only to a machine: it saves, leaves
its GPUs to others, and goes on there. The price of the move is one more save and start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.verdicts.reading import pause_of, worked_s
from dlq_master.policy.rent.line import may_rent

if TYPE_CHECKING:  # numpy comes with these, and a master starts without
    from dlq_master.policy.rent.market import Wanting
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


def wanting_of(
    cluster: Cluster,
    now_s: float,
    waiting: Sequence[Job],
    moving: Moving,
    outranked: Collection[AttemptKey],
    times: MachineRunTimes,
    ends: Mapping[int, float],
) -> tuple[Wanting, ...]:
    """The jobs that wait and those that might move, with the rest of each on machines, and its end
    on the own nodes by `ends`. A moving job has its save and its start left as well. It ends on own
    nodes no later than on its present GPUs, unless it gives way to another.
    """
    from dlq_master.policy.rent.market import Wanting

    found = []
    keys = [*[None] * len(waiting), *moving]
    jobs = [*waiting, *moving.values()]
    for key, job, left_s in zip(keys, jobs, times.left_s(jobs), strict=True):
        end_s = ends.get(job.job_id, inf)
        if key is not None:
            pause = pause_of(cluster, job)
            left_s = left_s + pause.save_s + pause.resume_s
            if key not in outranked:
                attempt = cluster.attempts[key]
                width, pace = attempt.lease.allocation.width, attempt.paced(job.request)
                end_s = min(end_s, now_s + times.on_own_s(job, width, pace))
        if (late := job.lateness) is not None:
            found.append(Wanting(job.job_id, late.due_s, late.weight, left_s, end_s))
    return tuple(found)


def _runs_on(attempt: Attempt) -> bool:
    """Nothing else is to become of it just now."""
    untouched = attempt.stop_cause is None and attempt.regrant is None and attempt.resize is None
    return untouched and attempt.state is AttemptState.RUNNING
