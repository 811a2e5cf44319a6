"""Where suspended jobs stand in the order: no job behind one of them gets its GPUs.

A suspended job stands where it stood when it ran, as if it had waited since it left its GPUs. A job
that ranks above it may take them, as from a job that runs. One that ranks below may not, neither
while the guest is there nor after it. So the job comes back once no job above it is on its GPUs.
One that a person has suspended stands nowhere until a person wants it back.

An order that compares all jobs anew for each plan knows no suspended ones. There they stand before
all other jobs of their priority, but behind the job that they have left for while it waits.
"""

from __future__ import annotations

from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import had, position
from dlq_master.model.order.lineup import Lineup, OutPlace
from dlq_master.model.view import View
from dlq_master.policy.stop_costs import pause_and_resume_s

_FIRST = -1 << 70  # before all positions


def out_places(view: View, order: Lineup, margin: float, anew: bool) -> tuple[OutPlace, ...]:
    """All that come back, in their order. `order`: of all other jobs, which is made `anew` for each
    plan or not. `margin`: each stands ahead by so many costs of a stop, as the jobs that run do.
    """
    cluster = view.cluster
    cluster.capacity.ready()
    found = []
    for key in cluster.claims.out:
        attempt, job = cluster.attempts[key], cluster.jobs[key.job_id]
        if not suspending.comes_back(attempt):
            continue
        parts = cluster.capacity.parts(attempt.place)
        place = cluster.priority(job), _FIRST
        if anew:
            place = _behind_guest(cluster, order, attempt) or place
        else:
            place = place[0], _position(cluster, job, attempt, margin)
        found.append(OutPlace(*place, job.job_id, parts))
    return tuple(sorted(found, key=lambda out: out[:3]))


def _behind_guest(cluster: Cluster, order: Lineup, attempt: Attempt) -> tuple[int, int] | None:
    out = attempt.suspension
    guest = None if out is None or out.for_job is None else cluster.jobs.get(out.for_job)
    if guest is None or not guest.waiting:
        return None
    priority = cluster.priority(guest)
    for line in order.waiting.by_priority.get(priority, {}).values():
        if guest.job_id in line:
            return priority, line[guest.job_id] + 1
    return None


def _position(cluster: Cluster, job: Job, attempt: Attempt, margin: float) -> int:
    if cluster.key is None:
        return job.sequence
    out = attempt.suspension
    assert out is not None
    waits = job._replace(live_attempt=None, queued_since_s=out.out_s)
    kept_s = 0.0
    if margin:
        lost_s = 0.0 if job.keeps_work else attempt.carried_s
        kept_s = margin * (pause_and_resume_s(cluster, job) + lost_s)
    return position(waits, cluster.key(waits, had(waits, None, 0.0, kept_s)))
