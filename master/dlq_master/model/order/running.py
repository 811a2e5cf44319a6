"""Jobs that may be preempted: by priority, with their sums, and by the end of their term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END
from dlq_master.model.values import maker


class Place(NamedTuple):
    """Where a running job stands; `gpus` is its width."""

    priority: int
    sequence: int
    gpus: int
    term_end_s: float


_place = maker(Place)
Ranks = tuple[list[int], list[JobId]]  # positions in order, and whose they are


class RunningIndex:
    """Live attempts that are neither stopping nor silent.

    Under REQUEUE all jobs between STARTED_BASE and STARTED_END go ahead of every waiting job of
    their priority but promoted ones. So a plan can keep them as one sum without looking at each.
    """

    __slots__ = (
        *("by_priority", "by_term", "gpus_by_priority", "gpus_together", "places"),
        *("sized", "without_gpus"),
    )

    def __init__(self) -> None:
        self.places: dict[JobId, Place] = {}
        self.without_gpus: set[JobId] = set()  # of these: their width is one of cores
        self.sized: set[JobId] = set()  # of these: they may run on several numbers of GPUs
        self.by_priority: dict[int, dict[JobId, int]] = {}  # priority -> job -> sequence
        self.by_term: dict[float, dict[AttemptKey, None]] = {}  # attempts by the end of their term
        self.gpus_by_priority: dict[int, int] = {}
        self.gpus_together: dict[int, int] = {}  # of those that stand there

    def put(
        self, key: AttemptKey, priority: int, sequence: int, gpus: int, term_end_s: float
    ) -> None:
        """The job stands here, whatever was known of it before."""
        job_id = key.job_id
        place = _place((priority, sequence, gpus, term_end_s))
        if job_id in self.places:
            if self.places[job_id] == place:
                return
            self.remove(key)
        self.places[job_id] = place
        if priority in self.by_priority:
            self.by_priority[priority][job_id] = sequence
            self.gpus_by_priority[priority] += gpus
        else:
            self.by_priority[priority] = {job_id: sequence}
            self.gpus_by_priority[priority] = gpus
            self.gpus_together[priority] = 0
        if STARTED_BASE <= sequence < STARTED_END:
            self.gpus_together[priority] += gpus
        if term_end_s in self.by_term:
            self.by_term[term_end_s][key] = None
        else:
            self.by_term[term_end_s] = {key: None}

    def renew(self, key: AttemptKey, term_end_s: float) -> None:
        """Its term ends at another instant; an attempt with silent nodes stays out."""
        place = self.places.get(key.job_id)
        if place is None:
            return
        priority, sequence, gpus, was_s = place
        self.places[key.job_id] = _place((priority, sequence, gpus, term_end_s))
        by_term = self.by_term
        keys = by_term[was_s]
        del keys[key]
        if not keys:
            del by_term[was_s]
        if term_end_s in by_term:
            by_term[term_end_s][key] = None
        else:
            by_term[term_end_s] = {key: None}

    def remove(self, key: AttemptKey) -> None:
        """Its attempt runs no longer, or stands elsewhere."""
        job_id = key.job_id
        priority, sequence, gpus, term_end_s = self.places.pop(job_id)
        self.without_gpus.discard(job_id)
        self.sized.discard(job_id)
        members = self.by_priority[priority]
        del members[job_id]
        if members:
            self.gpus_by_priority[priority] -= gpus
            if STARTED_BASE <= sequence < STARTED_END:
                self.gpus_together[priority] -= gpus
        else:
            del (
                self.by_priority[priority],
                self.gpus_by_priority[priority],
                self.gpus_together[priority],
            )
        keys = self.by_term[term_end_s]
        del keys[key]
        if not keys:
            del self.by_term[term_end_s]

    def on(self, widths: Mapping[JobId, int]) -> RunningByKey:
        return RunningByKey(self, self.position).on(widths)

    def position(self, job_id: JobId) -> int:
        return self.places[job_id].sequence

    def in_order(self, priority: int) -> list[JobId]:
        """Jobs of the priority, the one that is kept first first."""
        members = self.by_priority.get(priority, {})
        return sorted(members, key=members.__getitem__)

    def ranked(self, priority: int) -> Ranks:
        """The same, with the positions of all."""
        job_ids = self.in_order(priority)
        return [*map(self.position, job_ids)], job_ids


class RunningByKey:
    """The same jobs with the positions of one instant, each worked out when asked for."""

    __slots__ = ("_positions", "_ranks", "_stands", "by_priority", "gpus_by_priority", "places")

    def __init__(self, index: RunningIndex, stands: Callable[[JobId], int]) -> None:
        self.places = index.places
        self.by_priority = index.by_priority
        self.gpus_by_priority = index.gpus_by_priority
        self._stands = stands
        self._positions: dict[JobId, int] = {}
        self._ranks: dict[int, Ranks] = {}

    def on(self, widths: Mapping[JobId, int]) -> RunningByKey:
        other = copy(self)
        other.places, other.gpus_by_priority = dict(self.places), dict(self.gpus_by_priority)
        for job_id, gpus in widths.items():
            place = self.places[job_id]
            other.places[job_id] = place._replace(gpus=gpus)
            other.gpus_by_priority[place.priority] += gpus - place.gpus
        return other

    def position(self, job_id: JobId) -> int:
        found = self._positions.get(job_id)
        if found is None:
            found = self._positions[job_id] = self._stands(job_id)
        return found

    def in_order(self, priority: int) -> list[JobId]:
        """Jobs of the priority, the one that is kept first first."""
        return self.ranked(priority)[1]

    def ranked(self, priority: int) -> Ranks:
        """The same, with the positions of all."""
        found = self._ranks.get(priority)
        if found is None:
            members = self.by_priority.get(priority, ())
            known, stands = self._positions, self._stands
            for job_id in members:
                if job_id not in known:
                    known[job_id] = stands(job_id)
            job_ids = sorted(sorted(members), key=known.__getitem__)  # ties by number
            found = self._ranks[priority] = [known[job_id] for job_id in job_ids], job_ids
        return found
