"""The jobs that leave at a boundary for a better job of their own team, where the team holds as
much as it may.

The better one stands aside (`borrowing`), so the walk does not see it. Of the jobs of its team with
a lower priority the last leave, as few as make room for it under the limit. When they have left,
it stands in line again. No job leaves that a guard protects. No job leaves for one that would not
find enough GPUs on the free ones and theirs. No job leaves while the team holds more than it may,
or others of it are leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.running import RunningByKey, RunningIndex
from dlq_master.policy.partition.borrowing import (
    BorrowingBudget,
    BorrowingWords,
    LendingLine,
    leaving_of,
    lines_of,
    room_of,
    suspended_of,
)
from dlq_master.policy.partition.quota_units import QuotaUnit

Stand = tuple[int, int | float, JobId]
Budgets = Callable[[str], list[BorrowingBudget]]  # account -> what has to allow a job of it


class _One(NamedTuple):
    """A job of a team, and where it stands in it, as if nobody borrowed: lower is better."""

    stand: Stand
    counts: float  # in the unit of quotas
    account: str

    @property
    def job_id(self) -> JobId:
        return self.stand[2]


def yielding(
    cluster: Cluster,
    running: RunningIndex | RunningByKey,
    limits: BorrowingWords,
    ending: Collection[AttemptKey],
    safe: Collection[AttemptKey],
    unit: QuotaUnit,
) -> dict[AttemptKey, JobId]:
    """Of the jobs whose terms end, those that leave, each with the job it leaves for: for one of
    each team at a time. `safe`: jobs that stay.
    """
    if limits == BorrowingWords(None) or not ending:
        return {}
    may = {key.job_id: key for key in ending if key not in safe}
    still, away = leaving_of(cluster, running, unit), suspended_of(cluster, unit)
    found: dict[AttemptKey, JobId] = {}
    for team, lines in sorted(lines_of(cluster, running, unit).items()):
        kept_back = [] if still.get(team) else _firsts(lines)
        if kept_back:
            others = away.get(team, [])
            leaving = _of_team(cluster, team, lines, kept_back, limits, may, others)
            found.update({may[one.job_id]: job_id for one, job_id in leaving.items()})
    return found


# --- helpers, in order of use ---------------------------------------------------------------------


def _firsts(lines: Sequence[LendingLine]) -> list[_One]:
    """The first of each line that its team's limit keeps back, the best first."""
    found = []
    for line in lines:
        if line.band is Band.LIMIT and not line.runs:
            job_id, position = next(iter(line.jobs.items()))
            found.append(_One((line.priority, position, job_id), line.each, line.account))
    return sorted(found)


def _of_team(
    cluster: Cluster,
    team: str,
    lines: Sequence[LendingLine],
    kept_back: Sequence[_One],
    limits: BorrowingWords,
    may: Mapping[JobId, AttemptKey],
    away: Sequence[LendingLine],
) -> dict[_One, JobId]:
    last_first = sorted(_lesser(cluster, lines, may), reverse=True)
    taken = [*away, *[line for line in lines if line.runs or line.band < Band.SPOT]]
    for better in kept_back if last_first else ():
        accounts = {better.account, *[one.account for one in last_first]}
        room = room_of(team, limits, taken, accounts)
        leaving = _least(better, last_first, room.budgets)
        if leaving and _has_room(cluster, cluster.jobs[better.job_id], leaving):
            return dict.fromkeys(leaving, better.job_id)
    return {}


def _lesser(
    cluster: Cluster, lines: Sequence[LendingLine], may: Mapping[JobId, AttemptKey]
) -> list[_One]:
    """The jobs that run by the order, on no more than their bases."""
    found = []
    for line in lines:
        for job_id, position in line.jobs.items() if line.runs and line.band >= Band.SPOT else ():
            key = may.get(job_id)
            if key and cluster.attempts[key].lease.allocation.width == line.gpus:
                found.append(_One((line.priority, position, job_id), line.each, line.account))
    return found


def _least(better: _One, last_first: Sequence[_One], budgets: Budgets) -> list[_One]:
    """The last of them that have to leave, none without need; empty: nobody does, or it is not
    enough.
    """
    own = budgets(better.account)
    if any(
        not budget.allows(0, 0) for budget in own
    ):  # nobody is stopped for a limit below what runs
        return []
    leaving: list[_One] = []
    for one in last_first:
        if _allow(own, better) or one.stand <= better.stand:
            break
        shared = [budget for budget in budgets(one.account) if budget in own]
        if any(not budget.allows(better.counts) for budget in shared):
            _take(shared, -one.counts, -1)
            leaving.append(one)
    if not _allow(own, better):
        return []
    for one in leaving[::-1]:  # the best of them may have been named before a wider one was
        shared = [budget for budget in budgets(one.account) if budget in own]
        _take(shared, one.counts, 1)
        if _allow(own, better):
            leaving.remove(one)
        else:
            _take(shared, -one.counts, -1)
    return leaving


def _allow(budgets: Collection[BorrowingBudget], one: _One) -> bool:
    return all(budget.allows(one.counts) for budget in budgets)


def _take(budgets: Collection[BorrowingBudget], gpus: float, jobs: int) -> None:
    for budget in budgets:
        budget.take(gpus, jobs)


def _has_room(cluster: Cluster, job: Job, leaving: Collection[_One]) -> bool:
    """Whether there are GPUs enough of its type once they have left; where they lie, the walk will
    see.
    """
    shape = job.request.shape
    nodes = cluster.nodes
    given = 0
    for one in leaving:
        attempt = cluster.live_attempt(cluster.jobs[one.job_id])
        for slot in () if attempt is None else attempt.lease.allocation.slots:
            masks = nodes[slot.node_id].masks().items()
            given += sum([(slot.mask & mask).bit_count() for it, mask in masks if shape.may_be(it)])
    cluster.capacity.ready()
    free = [pool.total for _, pool in shape.of_types(cluster.capacity.free)]
    return given > 0 and given + sum(free) >= job.request.base
