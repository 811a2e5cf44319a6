"""Quotas of teams that lend: a team has so many GPUs by right, and what others leave idle beside them.

Of everybody of a team, in the order of its policy, each stands in line by right whom what is left of the quota
holds; so one that is too wide for it keeps nobody from theirs. The others borrow: they come after all who do not, of whatever
team, and are the first to leave for those at a boundary. What holds a slot of the plan, or is tried, counts, and never
borrows; nor does what fills gaps beside its promise (Lane.FILL), and that does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import LANE, Lane
from dlq_master.model.plan import Reserve
from dlq_master.model.running import RunningByKey, RunningIndex
from dlq_master.model.view import View
from dlq_master.model.waiting import WaitingByTeam, WaitingIndex
from dlq_master.model.why import Reason, ReasonCode

OTHERS = "*"  # every team without a quota of its own, each by itself
_LENDING = (Lane.SPOT, Lane.BORROW)


class Line(NamedTuple):
    """Jobs of a team that hold or wait for as many GPUs each: job -> position, in the order of positions."""

    lane: Lane
    rank: int  # as if nobody borrowed
    gpus: int
    jobs: Mapping[JobId, int]


def quota_of(quotas: Mapping[str, int], team: str) -> int | None:
    """GPUs that the team has by right; None: as many as there are."""
    return quotas.get(team, quotas.get(OTHERS))


def relabelled(
    view: View, running: RunningIndex | RunningByKey, quotas: Mapping[str, int]
) -> list[Reserve]:
    """Who borrows from here on, and who does not any more: O(who runs, teams and their lines, and GPUs of quotas that somebody
    wants), but for jobs that have just come."""
    cluster = view.cluster
    if not isinstance(cluster.waiting, WaitingByTeam):
        raise TypeError("quotas of teams need an ordering by_team")
    held: dict[str, list[Job]] = defaultdict(list)
    for job_id in running.places:
        job = cluster.jobs[job_id]
        held[job.user].append(job)
    waiting = cluster.waiting.teams
    found: list[Reserve] = []
    for team in sorted(held.keys() | waiting.keys()):
        lines = _of_running(cluster, running, held.get(team, ()))
        if team in waiting:
            lines += _of_waiting(cluster, waiting[team])
        found += _told(cluster, lines, team, quota_of(quotas, team))
    # Each line is kept in the order of arrival: so they come to its end.
    found.sort(key=lambda change: cluster.jobs[change.job_id].sequence)
    return found


def _of_running(
    cluster: Cluster, running: RunningIndex | RunningByKey, jobs: Iterable[Job]
) -> list[Line]:
    """A line for each; what an elastic job holds beyond its base is nobody's by right."""
    found = []
    for job in jobs:
        place = running.places[job.job_id]
        gpus = min(place.gpus, job.request.base) if cluster.elastic(job) else place.gpus
        at = {job.job_id: running.position(job.job_id)}
        found.append(Line(job.lane, _without(place.rank, job), gpus, at))
    return found


def _of_waiting(cluster: Cluster, waiting: WaitingIndex) -> list[Line]:
    found = []
    for rank, shapes in waiting.by_rank.items():
        for shape, fifo in shapes.items():
            first = cluster.jobs[next(iter(fifo))]  # all of a rank are in one lane
            found.append(Line(first.lane, _without(rank, first), shape.gpus, fifo))
    return found


def _without(rank: int, job: Job) -> int:
    return rank - (Lane.BORROW - Lane.SPOT) * LANE if job.lane is Lane.BORROW else rank


def _told(cluster: Cluster, lines: list[Line], team: str, quota: int | None) -> Iterator[Reserve]:
    free = [line for line in lines if line.lane in _LENDING]
    if quota is None:
        right = None
    else:
        own = sum(len(line.jobs) * line.gpus for line in lines if line.lane < Lane.SPOT)
        right = _by_right(free, quota - own)
    for line in free:
        if line.lane is Lane.SPOT and right is not None:
            over = Reason(ReasonCode.QUOTA, "gpus", quota, quota, detail=f"team {team}")
            for job_id in [job_id for job_id in line.jobs if job_id not in right]:
                yield _in_lane(cluster.jobs[job_id], Lane.BORROW, over)
        elif line.lane is Lane.BORROW:
            within = Reason(ReasonCode.FITS, detail=f"the quota of {team}")
            back = line.jobs if right is None else [it for it in sorted(right) if it in line.jobs]
            for job_id in back:
                yield _in_lane(cluster.jobs[job_id], Lane.SPOT, within)


def _by_right(lines: list[Line], gpus: int) -> set[JobId]:
    """Who stands by right if so many GPUs are left for them: the first first, each who still fits."""
    if sum(len(line.jobs) * line.gpus for line in lines) <= gpus:
        return {job_id for line in lines for job_id in line.jobs}
    heads = []
    for line in lines:
        stand = ((line.rank, position, job_id) for job_id, position in line.jobs.items())
        heads.append((next(stand), line.gpus, stand))
    heapify(heads)
    found = set()
    while heads:
        (_, _, job_id), width, stand = heads[0]
        after = None
        if width <= gpus:
            found.add(job_id)
            gpus -= width
            after = next(stand, None)
        if after is None:
            heappop(heads)  # nobody is left, or nobody else of them fits either
        else:
            heapreplace(heads, (after, width, stand))
    return found


def _in_lane(job: Job, lane: Lane, reason: Reason) -> Reserve:
    return Reserve(job.job_id, lane, job.slots, job.promised, job.verdict, reason)
