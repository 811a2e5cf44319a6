"""Quotas and limits of teams: the band of each job follows from the GPUs that its team has.

A quota is a number of GPUs by right. The jobs of a team use it in the order of the policy; a job
that is too wide for the rest is skipped. The other jobs borrow (Band.BORROW). They come after all
jobs that do not borrow, of any team, and are preempted first for these at a boundary.

A limit is the most that a team may hold. A waiting job beyond it waits aside (Band.LIMIT) until
other jobs of the team have left. No running job is stopped for a limit. A member of a team may have
a quota and a limit within those of the team.

GPUs of a suspended job count, since it comes back to them. A job in a slot of a promise, or on
trial, counts and never borrows. A job that fills gaps beside its promise (Band.FILL) never borrows
and does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.accounts import of_member, of_team, team_of, tells_of_members
from dlq_master.model.jobs.band import PRIORITIES_PER_BAND, Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.running import RunningByKey, RunningIndex
from dlq_master.model.order.waiting import WaitingByTeam, WaitingIndex
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.quota_units import QuotaUnit

Told = Mapping[str, int] | None  # team or member -> GPUs or jobs; None: nothing is
_BESIDE = (Band.BORROW, Band.LIMIT)
_LENDING = (Band.SPOT, *_BESIDE)
_WITHIN = Reason(ReasonCode.FITS)


class LendingLine(NamedTuple):
    """Jobs of an account that hold or wait for the same number of GPUs: job -> position, in the
    order of positions. A job without GPUs counts as a job only. If the members of a team have no
    rules, the account is the team.
    """

    account: str
    band: Band
    priority: int  # as if nobody borrowed
    gpus: int
    jobs: Mapping[JobId, int]
    runs: bool
    weight: float = 1.0  # of each GPU, in the unit of quotas

    @property
    def each(self) -> float:
        """The count of one job against a quota."""
        return self.gpus * self.weight

    @property
    def total(self) -> float:
        return len(self.jobs) * self.each


class BorrowingWords(NamedTuple):
    """The rules of teams and members: GPUs, and jobs."""

    gpus: Told
    jobs: Told = None

    def budget(self, find: Callable[[Told], int | None]) -> BorrowingBudget | None:
        """The rules of one team or member as a budget; None: it has none."""
        gpus, jobs = find(self.gpus), find(self.jobs)
        if gpus is None and jobs is None:
            return None
        return BorrowingBudget(inf if gpus is None else gpus, inf if jobs is None else jobs)


class BorrowingBudget:
    """GPUs and jobs that are left."""

    __slots__ = ("gpus", "jobs")

    def __init__(self, gpus: float, jobs: float) -> None:
        self.gpus = gpus
        self.jobs = jobs

    def allows(self, gpus: float, jobs: int = 1) -> bool:
        return gpus <= self.gpus and jobs <= self.jobs

    def take(self, gpus: float, jobs: int = 1) -> None:
        self.gpus -= gpus
        self.jobs -= jobs


class BorrowingRoom(NamedTuple):
    """The rest of the limits of a team, and of members with rules of their own."""

    team: BorrowingBudget | None
    members: Mapping[str, BorrowingBudget]

    def holds(self, lines: Collection[LendingLine]) -> bool:
        """Whether all of them fit, whatever their order."""
        if self.members:
            return False
        total, jobs = sum(line.total for line in lines), sum(len(line.jobs) for line in lines)
        return self.team is None or self.team.allows(total, jobs)

    def budgets(self, account: str) -> list[BorrowingBudget]:
        """The accounts that have to allow a job of this account."""
        found = (self.team, self.members.get(account))
        return [budget for budget in found if budget is not None]


def relabelled(
    view: View,
    running: RunningIndex | RunningByKey,
    quotas: Told,
    limits: Told = None,
    jobs: Told = None,
    unit: QuotaUnit = QuotaUnit.GPUS,
) -> list[Reserve]:
    """Changes of bands: jobs that borrow or wait aside from now on, or no longer do.

    Costs O(running jobs, accounts and their lines, and the GPUs of quotas), besides new jobs.
    """
    cluster = view.cluster
    lines = lines_of(cluster, running, unit)
    found: list[Reserve] = []
    most = BorrowingWords(limits, jobs)
    leaving = leaving_of(cluster, running, unit) if most != BorrowingWords(None) else {}
    away = suspended_of(cluster, unit)
    for team in sorted(lines):
        found += _Team(cluster, team, lines[team], BorrowingWords(quotas), most).told(
            leaving.get(team, []), away.get(team, [])
        )
    # Each line is kept in the order of arrival: so they come to its end.
    found.sort(key=lambda change: cluster.jobs[change.job_id].sequence)
    return found


def lines_of(
    cluster: Cluster, running: RunningIndex | RunningByKey, unit: QuotaUnit
) -> Mapping[str, Sequence[LendingLine]]:
    """The running and waiting jobs of each team."""
    if not isinstance(cluster.waiting, WaitingByTeam):
        raise TypeError("quotas of teams need an ordering by_team")
    lines: dict[str, list[LendingLine]] = defaultdict(list)
    for line in _of_running(cluster, running, unit):
        lines[team_of(line.account)].append(line)
    for account, waiting in cluster.waiting.teams.items():
        lines[team_of(account)] += _of_waiting(cluster, account, waiting, unit)
    return lines


def leaving_of(
    cluster: Cluster, running: RunningIndex | RunningByKey, unit: QuotaUnit
) -> Mapping[str, list[LendingLine]]:
    """The jobs of each team that hold GPUs and are not in the running index: they save, or are
    silent.
    """
    suspended, places = cluster.claims.suspended, running.places
    keys = [it for it in cluster.attempts if it.job_id not in places and it not in suspended]
    return _of_attempts(cluster, keys, unit, whole=True)


def suspended_of(cluster: Cluster, unit: QuotaUnit) -> Mapping[str, list[LendingLine]]:
    """The suspended jobs of each team, as if they ran on the GPUs to which they come back."""
    return _of_attempts(cluster, cluster.claims.suspended, unit, whole=False)


def _of_attempts(
    cluster: Cluster, keys: Iterable[AttemptKey], unit: QuotaUnit, *, whole: bool
) -> Mapping[str, list[LendingLine]]:
    found: dict[str, list[LendingLine]] = defaultdict(list)
    for key in keys:
        job, attempt, at = cluster.jobs[key.job_id], cluster.attempts[key], {key.job_id: 0}
        gpus = 0 if job.request.without_gpus else attempt.place.width
        if not whole and cluster.elastic(job):
            gpus = min(gpus, job.request.base)
        found[team_of(job.account)].append(
            LendingLine(job.account, job.band, 0, gpus, at, True, unit.weight(attempt))
        )
    return found


def room_of(
    team: str, words: BorrowingWords, taken: Iterable[LendingLine], accounts: Collection[str]
) -> BorrowingRoom:
    """The rest of the rules of a team and its members after the jobs in `taken`."""
    members = {}
    for account in accounts if any(map(tells_of_members, words)) else ():
        budget = words.budget(partial(of_member, account=account))
        if budget is not None:
            members[account] = budget
    room = BorrowingRoom(words.budget(lambda told: of_team(told, team)), members)
    for line in taken:
        for budget in room.budgets(line.account):
            budget.take(line.total, len(line.jobs))
    return room


def _of_running(
    cluster: Cluster, running: RunningIndex | RunningByKey, unit: QuotaUnit
) -> Iterator[LendingLine]:
    """A line for each; the GPUs of an elastic job beyond its base are nobody's by right."""
    for job_id in running.places:
        job, place = cluster.jobs[job_id], running.places[job_id]
        gpus = min(place.gpus, job.request.base) if cluster.elastic(job) else place.gpus
        gpus = 0 if job.request.without_gpus else gpus
        at = {job_id: running.position(job_id)}
        weight = unit.weight(cluster.live_attempt(job))
        priority = _without(place.priority, job)
        yield LendingLine(job.account, job.band, priority, gpus, at, True, weight)


def _of_waiting(
    cluster: Cluster, account: str, waiting: WaitingIndex, unit: QuotaUnit
) -> Iterator[LendingLine]:
    for priority, shapes in waiting.by_priority.items():
        for shape, fifo in shapes.items():
            first = cluster.jobs[next(iter(fifo))]  # all of a priority are in one band
            gpus, weight = shape.real_gpus, unit.weight_of(cluster, shape)
            place = _without(priority, first)
            yield LendingLine(account, first.band, place, gpus, fifo, False, weight)


def _without(priority: int, job: Job) -> int:
    return (
        priority - (job.band - Band.SPOT) * PRIORITIES_PER_BAND if job.band in _BESIDE else priority
    )


class _Team:
    """One team: the places of its jobs."""

    def __init__(
        self,
        cluster: Cluster,
        team: str,
        lines: Sequence[LendingLine],
        quotas: BorrowingWords,
        limits: BorrowingWords,
    ) -> None:
        self.cluster = cluster
        self.team = team
        self.quotas = quotas
        self.limits = limits
        self.free = [line for line in lines if line.band in _LENDING]
        self.own = [line for line in lines if line.band < Band.SPOT]

    def told(
        self, leaving: Sequence[LendingLine], away: Sequence[LendingLine]
    ) -> Iterator[Reserve]:
        """The jobs of the team that change their band. `leaving`: jobs that still hold GPUs while
        they leave. `away`: suspended jobs.
        """
        due = [line for line in away if line.band not in _BESIDE]
        right = _first(self.free, self._room(self.quotas, [*self.own, *due]))
        waiting = [line for line in self.free if not line.runs]
        runs = [line for line in self.free if line.runs]
        room = self._room(self.limits, [*self.own, *runs, *leaving, *away])
        may = _first(waiting, room, self.cluster.returning)
        for line in self.free:
            beside = None if line.runs or may is None else may
            for job_id in _moved(line, right, beside):
                band = _band(job_id, right, beside)
                yield self._in_band(self.cluster.jobs[job_id], band)

    def _room(self, words: BorrowingWords, taken: Iterable[LendingLine]) -> BorrowingRoom:
        return room_of(self.team, words, taken, {line.account for line in self.free})

    def _in_band(self, job: Job, band: Band) -> Reserve:
        reason = _WITHIN._replace(detail=f"the quota of {self.team}")
        if band is Band.BORROW:
            quota = of_team(self.quotas.gpus, self.team)
            reason = Reason(ReasonCode.QUOTA, "gpus", quota, quota, (), f"team {self.team}")
        elif band is Band.LIMIT:
            limit = of_team(self.limits.gpus, self.team)
            reason = Reason(ReasonCode.TEAM_LIMIT, "gpus", limit, limit, (), f"team {self.team}")
        return Reserve(job.job_id, band, job.slots, job.promised, job.verdict, reason)


def _band(job_id: JobId, right: set[JobId] | None, may: set[JobId] | None) -> Band:
    if may is not None and job_id not in may:
        return Band.LIMIT
    return Band.SPOT if right is None or job_id in right else Band.BORROW


def _moved(line: LendingLine, right: set[JobId] | None, may: set[JobId] | None) -> list[JobId]:
    """The jobs of a line that change their band."""
    if line.band is Band.SPOT and right is None and may is None:
        return []
    if line.band is Band.SPOT:
        return [job_id for job_id in line.jobs if _band(job_id, right, may) is not line.band]
    # Few jobs leave these bands at a time: look only at the jobs that may.
    kept = _kept(line.band, right, may)
    if kept is None:
        return [job_id for job_id in line.jobs if _band(job_id, right, may) is not line.band]
    return [job_id for job_id in sorted(kept) if job_id in line.jobs]


def _kept(band: Band, right: set[JobId] | None, may: set[JobId] | None) -> set[JobId] | None:
    """The jobs that leave this band if they are in it; None: any job of it might."""
    if band is Band.LIMIT:
        return may
    return right if may is None else None


def _first(
    lines: list[LendingLine], room: BorrowingRoom, returning: Collection[JobId] = ()
) -> set[JobId] | None:
    """The jobs that the room holds, taken in order, each that still fits; None: all of them.
    `returning`: jobs that start in any case, since their new GPUs are kept. They take theirs first.
    """
    if room.team is None and not room.members:
        return None
    if room.holds(lines):
        return {job_id for line in lines for job_id in line.jobs}
    found = {job_id for job_id in returning if any(job_id in line.jobs for line in lines)}
    for line in lines if found else ():
        for budget in room.budgets(line.account):
            comes = len(found & line.jobs.keys())
            budget.take(comes * line.each, comes)
    heads = []
    for line in lines:
        stand = ((line.priority, position, job_id) for job_id, position in line.jobs.items())
        heads.append((next(stand), line.each, line.account, stand))
    heapify(heads)
    while heads:
        (_, _, job_id), width, account, stand = heads[0]
        after = None
        budgets = room.budgets(account)
        if job_id in found:
            after = next(stand, None)
        elif all(budget.allows(width) for budget in budgets):
            found.add(job_id)
            for budget in budgets:
                budget.take(width)
            after = next(stand, None)
        if after is None:
            heappop(heads)  # the line is empty, or no further job of it fits
        else:
            heapreplace(heads, (after, width, account, stand))
    return found
