"""Jobs whose GPUs a plan may take away, by rank, with their sums."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.order import STARTED_BASE, STARTED_END
from dlq_master.model.values import maker


class Place(NamedTuple):
    """Where a running job stands; `gpus` is its width."""

    rank: int
    sequence: int
    gpus: int


_place = maker(Place)


class RunningIndex:
    """Live attempts that are neither stopping nor silent.

    Under REQUEUE all that stand between STARTED_BASE and STARTED_END go ahead of every waiting job
    of their rank but promoted ones, so a plan can keep them as one sum without looking at each.
    """

    __slots__ = ("by_rank", "gpus_by_rank", "gpus_together", "places")

    def __init__(self) -> None:
        self.places: dict[JobId, Place] = {}
        self.by_rank: dict[int, dict[JobId, int]] = {}  # rank -> job -> sequence
        self.gpus_by_rank: dict[int, int] = {}
        self.gpus_together: dict[int, int] = {}  # of those that stand there

    def put(self, job_id: JobId, rank: int, sequence: int, gpus: int) -> None:
        """The job stands here, whatever was known of it before."""
        place = _place((rank, sequence, gpus))
        before = self.places.get(job_id)
        if before is not None:
            if before == place:
                return
            self.remove(job_id)
        self.places[job_id] = place
        if rank not in self.by_rank:
            self.by_rank[rank] = {}
            self.gpus_by_rank[rank] = self.gpus_together[rank] = 0
        self.by_rank[rank][job_id] = sequence
        self.gpus_by_rank[rank] += gpus
        if STARTED_BASE <= sequence < STARTED_END:
            self.gpus_together[rank] += gpus

    def remove(self, job_id: JobId) -> None:
        """Forget the job; nothing happens if it is not here."""
        place = self.places.pop(job_id, None)
        if place is None:
            return
        rank, sequence, gpus = place
        members = self.by_rank[rank]
        del members[job_id]
        if not members:
            del self.by_rank[rank], self.gpus_by_rank[rank], self.gpus_together[rank]
            return
        self.gpus_by_rank[rank] -= gpus
        if STARTED_BASE <= sequence < STARTED_END:
            self.gpus_together[rank] -= gpus

    def in_order(self, rank: int) -> list[JobId]:
        """Jobs of the rank, the one that is kept first first."""
        members = self.by_rank.get(rank, {})
        return sorted(members, key=members.__getitem__)
