"""Quotas of teams that lend: a team has so many GPUs by right, and what others leave idle beside them.

Of everybody of a team, in the order of its policy, the first stand in line for as many GPUs as its quota has. The
others borrow: they come after all who do not, of whatever team, and are the first to leave for those at a boundary.
What holds a slot of the plan, or is tried, counts, and never borrows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import LANE, Lane
from dlq_master.model.lineup import Lineup
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode

OTHERS = "*"  # every team without a quota of its own, each by itself


class Standing(NamedTuple):
    """A job of a team in line: where, and the GPUs that it holds or waits for."""

    place: tuple[int, int]
    job: Job
    gpus: int


def quota_of(quotas: Mapping[str, int], team: str) -> int | None:
    """GPUs that the team has by right; None: as many as there are."""
    return quotas.get(team, quotas.get(OTHERS))


def relabelled(view: View, lineup: Lineup, quotas: Mapping[str, int]) -> list[Reserve]:
    """Who borrows from here on, and who does not any more. O(n log n) in the jobs that wait and run."""
    by_team: dict[str, list[Standing]] = defaultdict(list)
    for one in _everybody(view, lineup):
        by_team[one.job.user].append(one)
    found: list[Reserve] = []
    for team, members in sorted(by_team.items()):
        quota = quota_of(quotas, team)
        found += _told(members, team, quota)
    return found


def _everybody(view: View, lineup: Lineup) -> Iterator[Standing]:
    """Who waits or runs, by the order in which it would stand if it did not borrow."""
    cluster = view.cluster
    for rank, shapes in lineup.waiting.by_rank.items():
        for shape, fifo in shapes.items():
            for job_id, position in fifo.items():
                job = cluster.jobs[job_id]
                yield Standing((_without(rank, job), position), job, shape.gpus)
    for job_id, place in lineup.running.places.items():
        job = cluster.jobs[job_id]
        gpus = min(place.gpus, job.request.base) if cluster.elastic(job) else place.gpus
        position = lineup.running.position(job_id)
        yield Standing((_without(place.rank, job), position), job, gpus)


def _without(rank: int, job: Job) -> int:
    return rank - (Lane.BORROW - Lane.SPOT) * LANE if job.lane is Lane.BORROW else rank


def _told(members: Iterable[Standing], team: str, quota: int | None) -> Iterator[Reserve]:
    taken = 0
    for _, job, gpus in sorted(members, key=_place):
        taken += gpus
        borrows = quota is not None and taken > quota
        if job.lane is Lane.SPOT and borrows:
            reason = Reason(ReasonCode.QUOTA, "gpus", quota, quota, detail=f"team {team}")
            yield _in_lane(job, Lane.BORROW, reason)
        elif job.lane is Lane.BORROW and not borrows:
            yield _in_lane(job, Lane.SPOT, Reason(ReasonCode.FITS, detail=f"the quota of {team}"))


def _place(one: Standing) -> tuple[tuple[int, int], JobId]:
    return one.place, one.job.job_id


def _in_lane(job: Job, lane: Lane, reason: Reason) -> Reserve:
    return Reserve(job.job_id, lane, job.slots, job.promised, job.verdict, reason)
