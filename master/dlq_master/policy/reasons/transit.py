"""Guards and preemptions as reasons of a waiting job."""

from __future__ import annotations

from dlq_master.model.jobs.job import Job
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.policy.reasons.decisions import Decisions
from dlq_master.policy.transit.guards import Guards, protects


def taken_off(job: Job) -> list[Reason]:
    """It waits since another took its GPUs."""
    taken = job.taken
    if taken is None or taken.lost_s is None or taken.time_s < (job.start_time_s or 0.0):
        return []
    return [Reason(ReasonCode.PREEMPTED, "seconds", have=taken.lost_s, blocking_jobs=(taken.by,))]


def shielded(decisions: Decisions, job: Job) -> list[Reason]:
    """The jobs that would leave for it at the next boundary without guards. Costs one more walk for
    all who ask.
    """
    guards = decisions.policy.guards
    if guards.most is None and not guards.min_run:
        return []
    cluster = decisions.view.cluster
    safe = [
        key.job_id
        for key, winner in sorted(decisions.unguarded.outranked.items())
        if winner == job.job_id
        and protects(cluster, guards, cluster.jobs[key.job_id], cluster.attempts[key])
    ]
    if not safe:
        return []
    gpus, named = job.request.gpus, tuple(safe[:BLOCKERS_NAMED])
    return [Reason(ReasonCode.PROTECTED, "gpus", gpus, None, named, _rules(guards))]


def _rules(guards: Guards) -> str:
    """`a job runs for at least 2 times what its pause and resume cost, and is preempted 20 times at
    most`.
    """
    told = []
    if guards.min_run:
        told.append(f"runs for at least {guards.min_run:g} times what its pause and resume cost")
    if guards.most is not None:
        told.append(f"is preempted {guards.most} times at most")
    return f"a job {', and '.join(told)}"
