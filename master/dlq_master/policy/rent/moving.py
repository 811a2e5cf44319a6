"""Running jobs on own nodes that might be better off on a rented machine.

The cost rule of GPU as a Service decides over all jobs, and may give running jobs other
configurations. Only elastic jobs are moved here, and only from own nodes to a machine. A move costs
one more save and one more start: the job saves, leaves its GPUs to others, and goes on there.
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
    from dlq_master.policy.rent.market import Bidder
    from dlq_master.policy.rent.times import MachineRunTimes

MovableJobs = Mapping[AttemptKey, Job]


def movable_jobs(cluster: Cluster, now_s: float) -> dict[AttemptKey, Job]:
    """The running jobs that may migrate, by attempt, each as if it had stopped now to wait.

    They run on own nodes that take work, have several sizes, and are not about to change. In the
    order of their keys.
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


def bidders_of(
    cluster: Cluster,
    now_s: float,
    waiting: Sequence[Job],
    moving: MovableJobs,
    outranked: Collection[AttemptKey],
    times: MachineRunTimes,
    ends: Mapping[int, float],
) -> tuple[Bidder, ...]:
    """The bidders of a decision: waiting jobs, then jobs that may move.

    `ends`: the end of each job on own nodes, by job. A job that moves needs its save and its start
    beside its remaining time. On own nodes it ends no later than on its present GPUs, unless it is
    outranked.
    """
    from dlq_master.policy.rent.market import Bidder

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
            found.append(Bidder(job.job_id, late.due_s, late.weight, left_s, end_s))
    return tuple(found)


def _runs_on(attempt: Attempt) -> bool:
    """Whether the attempt runs, and is neither stopped nor resized."""
    untouched = attempt.stop_cause is None and attempt.regrant is None and attempt.resize is None
    return untouched and attempt.state is AttemptState.RUNNING
