"""Who holds the present slot of the SLO grid comes first, the widest first, and each on as few nodes as ever.

Widths are divisors of a node, rounded up, so jobs that are placed the widest first fit in whatever way
they are placed, if they fit at all (Chronus, Proposition 1). What runs already stays where it is, and may
have left too little of a node: then some of it moves (`movers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.attempt import AttemptState
from dlq_master.model.cluster import LANE, Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import Lane
from dlq_master.model.resources import Shape
from dlq_master.policy.walk.contest import Contest
from dlq_master.policy.walk.pinned import Pinned
from dlq_master.policy.walk.space import Space

# Ranks below are of the SLO lane.
_FIRST_RANK = -(3 * LANE) // 2
_SLO_RANK = Lane.SLO * LANE


class SlotSpace(Space):
    """`Space`, without those who have been seated."""

    def ranks(self) -> Sequence[int]:
        """All in which somebody waits who is not seated."""
        return [rank for rank in super().ranks() if rank >= _FIRST_RANK]


class SlotContest(Contest):
    """`Contest`, without those who have been seated."""

    def ranks(self) -> Sequence[int]:
        """All in which somebody waits or runs who is not seated."""
        return [rank for rank in super().ranks() if rank >= _FIRST_RANK]


class Seat(NamedTuple):
    """A job that holds the present slot and no GPUs; `leaving`: it is still saving elsewhere."""

    job_id: JobId
    shape: Shape
    leaving: bool


def seats(cluster: Cluster, moving: Iterable[JobId] = ()) -> list[Seat]:
    """Everybody who is to be seated, the widest first; `moving`: jobs that are to leave for others."""
    found = [_seat(cluster, cluster.jobs[job_id], leaving=True) for job_id in moving]
    for job_id in cluster.seated:
        job = cluster.jobs[job_id]
        attempt = cluster.live_attempt(job)
        if job.waiting:
            found.append(_seat(cluster, job, leaving=False))
        elif attempt is not None and attempt.state is AttemptState.PAUSING:
            found.append(_seat(cluster, job, leaving=True))
    return sorted(found, key=lambda seat: (-seat.shape.gpus, seat.job_id))


def serve(ground: Space, waiting: Iterable[Seat]) -> None:
    """GPUs for all of them, or as soon as others have left."""
    for seat in waiting:
        if ground.spent:
            return
        head = (0, seat.job_id, seat.shape, iter(()))
        if not seat.leaving:
            ground.serve(_SLO_RANK, head)
        elif not ground.claim(head) and isinstance(ground, Contest):
            ground.force(_SLO_RANK, head)


def leave(ground: SlotContest, going: Mapping[AttemptKey, JobId]) -> None:
    """These stop at the end of their term, to go on elsewhere in the next."""
    for key, for_job in going.items():
        ground.outcome.outranked[key] = for_job
        ground.outcome.moving.add(key)
        for gpu_type, parts in ground.contested(ground.cluster.attempts[key]):
            ground.stocks[gpu_type].give_later(parts)


def holding(cluster: Cluster) -> list[JobId]:
    """Jobs that run in a slot that is theirs."""
    running = cluster.running.places
    return [job_id for job_id in cluster.seated if job_id in running]


def pinned_too(cluster: Cluster, pinned: Pinned, stay: Collection[JobId]) -> Pinned:
    """The same, and these jobs stay where they are."""
    by_rank = dict(pinned.gpus_by_rank)
    for job_id in stay:
        place = cluster.running.places[job_id]
        if job_id not in pinned.job_ids:
            by_rank[place.rank] = by_rank.get(place.rank, 0) + place.gpus
    return pinned._replace(job_ids=pinned.job_ids | frozenset(stay), gpus_by_rank=by_rank)


def _seat(cluster: Cluster, job: Job, *, leaving: bool) -> Seat:
    return Seat(job.job_id, cluster.shape(job), leaving)
