"""The GPUs and jobs of accounts, and the rule on them that keeps a job back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.accounts import of_member, of_team, team_of
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.why import BLOCKERS_NAMED, Kind, Reason, ReasonCode
from dlq_master.policy.partition.quota_units import QuotaUnit
from dlq_master.policy.policy import Policy
from dlq_master.policy.stop_costs import expected_end_s


class HeldByAccount:
    """How many GPUs and jobs each team, and each member in one (`TEAM/USER`), holds: O(attempts) to
    make.
    """

    def __init__(self, cluster: Cluster, unit: QuotaUnit) -> None:
        self.unit = unit
        self.cluster = cluster
        self.gpus: defaultdict[str, float] = defaultdict(float)
        self.jobs: Counter[str] = Counter()
        for key, attempt in cluster.attempts.items():
            job = cluster.jobs[key.job_id]
            gpus = unit.held(job, attempt)
            for name in (team_of(job.account), job.account):
                self.gpus[name] += gpus
                self.jobs[name] += 1


class Word(NamedTuple):
    """A word that leaves no room for a job: `name` (in words `who`) may have `most` of `resource`,
    and has `taken`.
    """

    resource: str
    most: float
    taken: float
    name: str
    who: str

    @property
    def subject(self) -> str:
        """`gpus of team vision`."""
        return f"{'jobs' if self.resource == 'jobs' else 'gpus'} of {self.who}"


def over_account(cluster: Cluster, policy: Policy, job: Job) -> list[Reason]:
    """Why a job borrows or stands aside. Either the rules of its team, and of its user in it, leave
    no room for it. Or other jobs of its team, which stand before it, take the rest.
    """
    code = _code(job)
    found = []
    for word in _words(HeldByAccount(cluster, policy.quota_unit), policy, job):
        named: tuple[JobId, ...] = ()
        if word.resource != "width":
            named = tuple(holders(cluster, word.name))[:BLOCKERS_NAMED]
        told = (code, word.resource, word.most, word.taken, named, word.who, word.subject)
        found.append(Reason(*told))
    team = team_of(job.account)
    return found or [Reason(code, "rest", detail=f"team {team}", subject=_rest(team))]


def kinds_over_account(held: HeldByAccount, policy: Policy, job: Job) -> Iterator[Kind]:
    """The same for a list: O(1)."""
    found = [Kind(_code(job), word.subject) for word in _words(held, policy, job)]
    yield from found or [Kind(_code(job), _rest(team_of(job.account)))]


def holders(cluster: Cluster, account: str, unit: QuotaUnit = QuotaUnit.GPUS) -> dict[JobId, float]:
    """Jobs of a team, or of one member of it (`TEAM/USER`), that run, and how many GPUs each holds;
    the first to end comes first: O(attempts).
    """
    found: list[tuple[float, JobId, float]] = []
    for key, attempt in cluster.attempts.items():
        job = cluster.jobs[key.job_id]
        if account in (job.account, team_of(job.account)):
            ends_s = expected_end_s(job, attempt, attempt.started_time_s)
            found.append((ends_s, key.job_id, unit.held(job, attempt)))
    return {job_id: gpus for _, job_id, gpus in sorted(found)}


def _code(job: Job) -> ReasonCode:
    return ReasonCode.TEAM_LIMIT if job.band is Band.LIMIT else ReasonCode.QUOTA


def _rest(team: str) -> str:
    return f"gpus of team {team}"


def _words(held: HeldByAccount, policy: Policy, job: Job) -> Iterator[Word]:
    asks = held.unit.asked(held.cluster, job)
    if job.band is not Band.LIMIT:
        yield from _over(policy.borrowing, held.gpus, job, asks, "gpus")
        return
    yield from _over(policy.job_limits, held.jobs, job, 1, "jobs")
    for word in _over(policy.limits, held.gpus, job, asks, "gpus"):
        wide = asks > word.most
        yield word._replace(resource="width", taken=asks) if wide else word


def _over(
    told: Mapping[str, int] | None, held: Mapping[str, float], job: Job, more: float, resource: str
) -> Iterator[Word]:
    team, account = team_of(job.account), job.account
    if resource != "jobs" and job.request.without_gpus:
        return
    words = (
        (f"team {team}", team, of_team(told, team)),
        (f"{job.user} in team {team}", account, of_member(told, account)),
    )
    for who, name, most in words:
        taken = held.get(name, 0.0)
        if most is not None and taken + more > most:
            yield Word(resource, most, taken, name, who)
