"""Jobs that will be submitted while others wait, drawn from the latest submissions.

Newcomers may go first where a policy skips jobs that do not fit, or serves users with little
service first. Then a start is the later the more newcomers there are. They are unknown, so they are
drawn from the last jobs (a bootstrap), at the same rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.policy.policy import Policy
from dlq_master.policy.transit.taking import Taking

# Fewer tell no rate.
_LEAST = 20
# No more are drawn: the time after so many is simulated without them.
_MOST = 2_000
_SPAN_S = 86_400.0  # likewise
# Numbers that no job has.
_FIRST = 1 << 61


def matter(policy: Policy) -> bool:
    """Whether later jobs can be served earlier."""
    return not (policy.blocking and policy.taking is Taking.NEVER)


def newcomers(recent: Sequence[Job], now_s: float, seed: int) -> list[Job]:
    """Drawn jobs, in the order of submission. `recent`: the last submitted jobs, oldest first."""
    if len(recent) < _LEAST or now_s <= recent[0].submit_time_s:
        return []
    rate = len(recent) / (now_s - recent[0].submit_time_s)
    draw = Random(seed)
    at_s, jobs = now_s, list[Job]()
    while len(jobs) < _MOST:
        at_s += draw.expovariate(rate)
        if at_s > now_s + _SPAN_S:
            break
        jobs.append(_like(draw.choice(recent), JobId(_FIRST + len(jobs)), at_s))
    return jobs


def _like(job: Job, job_id: JobId, at_s: float) -> Job:
    """Another job with the same request."""
    return Job(
        job_id=job_id,
        user=job.user,
        name=job.name,
        request=job.request,
        submit_time_s=at_s,
        queue=job.queue,
        priority_base=job.priority_base,
        nice=job.nice,
        time_limit_s=job.time_limit_s,
        duration_estimate_s=job.duration_estimate_s,
        rules=job.rules,
        profile=job.profile,
        steps=job.steps,
        keeps_work=job.keeps_work,
        family=job.family,
    )
