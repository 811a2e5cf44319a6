"""What accounts hold, and which word on them keeps a job back."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.accounts import of_member, of_team, team_of
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import Lane
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.policy.policy import Policy


def over_account(cluster: Cluster, policy: Policy, job: Job) -> list[Reason]:
    """Why a job borrows or stands aside: the words on its team, and on its user in it, that leave no room for it."""
    if job.lane is Lane.LIMIT:
        return _too_many(cluster, policy.job_limits, job) or _over(
            cluster, policy.limits, job, ReasonCode.TEAM_LIMIT
        )
    return _over(cluster, policy.borrowing, job, ReasonCode.QUOTA)


def holders(cluster: Cluster, account: str) -> dict[JobId, int]:
    """Jobs of a team, or of one member of it (`TEAM/USER`), that hold GPUs, and how many: O(attempts)."""
    found: dict[JobId, int] = {}
    for key, attempt in cluster.attempts.items():
        theirs = cluster.jobs[key.job_id].account
        if account in (theirs, team_of(theirs)):
            found[key.job_id] = attempt.lease.allocation.width
    return found


def _over(
    cluster: Cluster, told: Mapping[str, int] | None, job: Job, code: ReasonCode
) -> list[Reason]:
    team, account = team_of(job.account), job.account
    words = (
        (f"team {team}", team, of_team(told, team)),
        (f"{job.user} in team {team}", account, of_member(told, account)),
    )
    found = []
    for who, name, gpus in words:
        if gpus is None:
            continue
        held = holders(cluster, name)
        taken, named = sum(held.values()), tuple(sorted(held)[:BLOCKERS_NAMED])
        if taken + job.request.base > gpus:
            found.append(Reason(code, "gpus", gpus, taken, named, who))
    if (
        not found and (team_gpus := of_team(told, team)) is not None
    ):  # those before it in its team's line take what is left
        found.append(Reason(code, "gpus", team_gpus, team_gpus, (), f"team {team}"))
    return found


def _too_many(cluster: Cluster, told: Mapping[str, int] | None, job: Job) -> list[Reason]:
    """Limits of jobs that run."""
    team, account = team_of(job.account), job.account
    words = (
        (f"team {team}", team, of_team(told, team)),
        (f"{job.user} in team {team}", account, of_member(told, account)),
    )
    found = []
    for who, name, jobs in words:
        held = sorted(holders(cluster, name)) if jobs is not None else []
        if jobs is not None and len(held) >= jobs:
            named = tuple(held[:BLOCKERS_NAMED])
            found.append(Reason(ReasonCode.TEAM_LIMIT, "jobs", jobs, len(held), named, who))
    return found
