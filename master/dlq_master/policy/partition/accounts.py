"""What accounts hold, and which word on them keeps a job back."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.accounts import of_member, of_team, team_of
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import Lane
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.policy.expected_end import expected_end_s
from dlq_master.policy.policy import Policy


def over_account(cluster: Cluster, policy: Policy, job: Job) -> list[Reason]:
    """Why a job borrows or stands aside: the words on its team, and on its user in it, that leave no room for it; or that
    others of its team, who stand before it, take what they leave."""
    if job.lane is Lane.LIMIT:
        code = ReasonCode.TEAM_LIMIT
        found = _over(cluster, policy.job_limits, job, code, "jobs")
        found += _over(cluster, policy.limits, job, code, "gpus")
    else:
        code = ReasonCode.QUOTA
        found = _over(cluster, policy.borrowing, job, code, "gpus")
    return found or [Reason(code, "rest", detail=f"team {team_of(job.account)}")]


def holders(cluster: Cluster, account: str) -> dict[JobId, int]:
    """Jobs of a team, or of one member of it (`TEAM/USER`), that hold GPUs, and how many; who ends first comes first:
    O(attempts)."""
    found: list[tuple[float, JobId, int]] = []
    for key, attempt in cluster.attempts.items():
        theirs = cluster.jobs[key.job_id].account
        if account in (theirs, team_of(theirs)):
            ends_s = expected_end_s(cluster.jobs[key.job_id], attempt.started_time_s)
            found.append((ends_s, key.job_id, attempt.lease.allocation.width))
    return {job_id: gpus for _, job_id, gpus in sorted(found)}


def _over(
    cluster: Cluster, told: Mapping[str, int] | None, job: Job, code: ReasonCode, what: str
) -> list[Reason]:
    team, account = team_of(job.account), job.account
    words = (
        (f"team {team}", team, of_team(told, team)),
        (f"{job.user} in team {team}", account, of_member(told, account)),
    )
    more = 1 if what == "jobs" else job.request.base
    found = []
    for who, name, most in words:
        held = holders(cluster, name) if most is not None else {}
        taken = len(held) if what == "jobs" else sum(held.values())
        if most is not None and what == "gpus" and code is ReasonCode.TEAM_LIMIT and more > most:
            found.append(Reason(code, "width", most, more, (), who))
        elif most is not None and taken + more > most:
            named = tuple(held)[:BLOCKERS_NAMED]
            found.append(Reason(code, what, most, taken, named, who))
    return found
