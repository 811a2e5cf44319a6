"""The holders of the present slot of the SLO grid come first, the widest first, and each on as few
nodes as ever.

Widths are divisors of a node, rounded up. So jobs that are placed the widest first fit in any
placement, if they fit at all (Chronus, Proposition 1). A job that runs already stays in place, and
may have left too little of a node: then some of it moves (`defragmentation`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import PRIORITIES_PER_BAND, PROFILE_PRIORITY, Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.model.order.running import Place
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.line import Head
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.pinned import Pinned
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.allocation.type_capacity import usable
from dlq_master.policy.place.packing.joint import block_of, round_up
from dlq_master.policy.promise.capacity.grids import own_pool, slot_s, type_of
from dlq_master.policy.transit.contest import Contest

# Priorities below are of those who have had their turn before the walk: seats, and trials.
_FIRST_PRIORITY = (PROFILE_PRIORITY + Band.SPOT * PRIORITIES_PER_BAND) // 2
_SLO_PRIORITY = Band.SLO * PRIORITIES_PER_BAND
# From here on nobody is served: their teams hold as much as they may.
_LAST_PRIORITY = (Band.BORROW + Band.LIMIT) * PRIORITIES_PER_BAND // 2


class SlotSpace(Space):
    """`Space`, without those who have been seated, or are tried."""

    before: Callable[[int], None] | None = None  # hears of each priority before its turn

    def walked(self) -> Outcome:
        """The outcome of the walk; there is none where nothing is left."""
        return self.outcome if self.spent else super().walked()

    def priorities(self) -> Iterable[int]:
        """All others in which somebody waits."""
        found = [
            priority
            for priority in super().priorities()
            if _FIRST_PRIORITY <= priority < _LAST_PRIORITY
        ]
        return found if self.before is None else _announced(found, self.before)

    def serve(self, priority: int, head: Head) -> bool:
        """It starts or claims. Its GPUs are written down even if it is the last. Until all slot
        holders and trials are served, GPUs that are away now may come back (`floor`).
        """
        if head[1] in self.outcome.claims:  # nodes that others leave are kept for it already
            return True
        found = self.find_free(head)
        if found is None:
            return self.claim(head)
        type_capacity, parts = found
        self.outcome.chosen[head[1]] = parts
        type_capacity.take(parts)
        left = type_capacity.free.total or self.most_left()
        self.spent = priority >= _FIRST_PRIORITY and not left
        return True


class SlotContest(Contest):
    """`Contest`, without those who have been seated, or are tried."""

    before: Callable[[int], None] | None = None  # hears of each priority before its turn

    def priorities(self) -> Iterable[int]:
        """All others in which somebody waits or runs."""
        found = [
            priority
            for priority in super().priorities()
            if _FIRST_PRIORITY <= priority < _LAST_PRIORITY
        ]
        return found if self.before is None else _announced(found, self.before)

    spared: frozenset[int] = frozenset()  # nodes on which nobody has to leave just now

    def contested(self, attempt: Attempt) -> list[tuple[str, Parts]]:
        """The GPUs that others may have if this attempt leaves, by GPU type."""
        found = super().contested(attempt)
        if not self.spared:
            return found
        left = [
            (kind, tuple([part for part in parts if part.ordinal not in self.spared]))
            for kind, parts in found
        ]
        return [(kind, parts) for kind, parts in left if parts]

    def guard(self, protected: Collection[JobId]) -> None:
        """From here on these stay, unless they have been made to leave for a seat or a trial."""
        leaving = {key.job_id for key in self.outcome.outranked}
        places = self.lineup.running.places
        known = self.pinned.job_ids
        stay = [it for it in protected if it in places and it not in leaving and it not in known]
        for job_id in stay:
            self.below -= places[job_id].gpus
            if self.victims is not None:
                self.victims.keep(job_id)
        self.pinned = pinned_too(places, self.pinned, stay)

    def _after(self, priority: int, position: int) -> list[JobId]:
        leaving = {key.job_id for key in self.outcome.outranked}
        return [job_id for job_id in super()._after(priority, position) if job_id not in leaving]


def _announced(priorities: Iterable[int], before: Callable[[int], None]) -> Iterator[int]:
    for priority in priorities:
        before(priority)
        yield priority


class SlotHolder(NamedTuple):
    """A job that holds the present slot and no GPUs; `leaving`: it is still saving elsewhere.

    `whole`: the nodes to be cleared for it. Two nodes with 6 free GPUs each have room for 12. So
    have one of 8 and a half one, which it would then take from others.
    """

    job_id: JobId
    shape: Shape
    whole: Shape
    leaving: bool


def seats(cluster: Cluster, moving: Iterable[JobId] = ()) -> list[SlotHolder]:
    """Everybody who is to be seated, the widest first; `moving`: jobs that are to leave for
    others.
    """
    running = cluster.running.places  # neither waits nor leaves
    found = [_seat(cluster, cluster.jobs[job_id], leaving=True) for job_id in moving]
    for job_id in cluster.seated:
        if job_id in running:
            continue
        job = cluster.jobs[job_id]
        if job.waiting:
            found.append(_seat(cluster, job, leaving=False))
            continue
        attempt = cluster.live_attempt(job)
        if attempt is None or attempt.regrant is not None:  # it goes on where GPUs are kept for it
            continue
        if attempt.state is AttemptState.PAUSING:
            found.append(_seat(cluster, job, leaving=True))
    return sorted(found, key=lambda seat: (-seat.shape.gpus, seat.job_id))


def serve(allocator: Space, waiting: Iterable[SlotHolder]) -> None:
    """GPUs for all of them, or as soon as others have left."""
    for seat in waiting:
        if allocator.spent:
            return
        head = (0, seat.job_id, seat.shape, iter(()))
        if not seat.leaving and _start(allocator, head):
            continue
        if not (
            seat.whole is not seat.shape and _keep(allocator, (0, seat.job_id, seat.whole, head[3]))
        ):
            _keep(allocator, head)


def _start(allocator: Space, head: Head) -> bool:
    """On GPUs that are free now; the allocator is not spent by it, for more may come back
    (`floor`).
    """
    found = allocator.find_free(head)
    if found is None:
        return False
    type_capacity, parts = found
    allocator.outcome.chosen[head[1]] = parts
    type_capacity.take(parts)
    return True


def _keep(allocator: Space, head: Head) -> bool:
    """GPUs that others are leaving, or have to leave for it."""
    return allocator.claim(head) or (
        isinstance(allocator, Contest) and allocator.force(_SLO_PRIORITY, head)
    )


def leave(allocator: SlotContest, going: Mapping[AttemptKey, JobId]) -> None:
    """These stop at the end of their term, to go on elsewhere in the next."""
    make_room(allocator, going)
    allocator.outcome.moving.update(going)


def make_room(allocator: SlotContest, leaving: Mapping[AttemptKey, JobId]) -> None:
    """These stop at the end of their term, each for a job."""
    for key, for_job in leaving.items():
        allocator.outcome.outranked[key] = for_job
        for gpu_type, parts in allocator.contested(allocator.cluster.attempts[key]):
            allocator.capacities[gpu_type].give_later(parts)


def reserved_now(cluster: Cluster) -> frozenset[NodeId]:
    """Nodes that are reserved for some of the present slot."""
    term_s = slot_s(cluster)
    begin_s, end_s = cluster.slot * term_s, (cluster.slot + 1) * term_s
    return frozenset(
        node.node_id
        for node in cluster.nodes.values()
        if any(it.begin_s < end_s and it.end_s > begin_s for it in node.windows)
    )


def holding(cluster: Cluster) -> list[JobId]:
    """Jobs that run in a slot that is theirs."""
    running = cluster.running.places
    return [job_id for job_id in cluster.seated if job_id in running]


def ends_now(cluster: Cluster, job: Job) -> bool:
    """Whether it will have ended when the slot begins: it keeps its seat, but nothing is planned
    for it.
    """
    return job.band is Band.SLO and not job.planned(cluster.slot)


def leave_behind(allocator: Space, overdue: Collection[JobId] = ()) -> None:
    """GPUs of jobs that will have ended are there for others when the slot begins; `overdue`: these
    should have, and nobody knows when they will.
    """
    cluster = allocator.cluster
    for job_id in holding(cluster):
        if job_id in overdue:
            continue
        job = cluster.jobs[job_id]
        attempt = cluster.live_attempt(job) if ends_now(cluster, job) else None
        if attempt is not None:
            held = cluster.capacity.parts(attempt.lease.allocation)
            for gpu_type, parts in usable(cluster.capacity, held):
                allocator.capacities[gpu_type].give_later(parts)


def pinned_too(places: Mapping[JobId, Place], pinned: Pinned, stay: Collection[JobId]) -> Pinned:
    """The same, and these jobs stay where they are. `places`: of all who run."""
    by_priority = dict(pinned.gpus_by_priority)
    for job_id in stay:
        place = places[job_id]
        if job_id not in pinned.job_ids:
            by_priority[place.priority] = by_priority.get(place.priority, 0) + place.gpus
    return pinned._replace(job_ids=pinned.job_ids | frozenset(stay), gpus_by_priority=by_priority)


def _seat(cluster: Cluster, job: Job, *, leaving: bool) -> SlotHolder:
    shape = cluster.shape(job)
    if leaving and (away := reserved_now(cluster)):  # who waits keeps off them by itself
        shape = shape._replace(avoid=(*shape.avoid, *sorted(away.difference(shape.avoid))))
    return SlotHolder(job.job_id, shape, _whole(cluster, job, shape), leaving)


def _whole(cluster: Cluster, job: Job, shape: Shape) -> Shape:
    """In whole nodes, as the plan counts it, if it takes more than one; the shape itself if that is
    so many.
    """
    if shape.gpus & (shape.gpus - 1) == 0:
        return shape
    size = block_of(own_pool(cluster, type_of(cluster, job)))
    gpus = round_up(shape.gpus, size)
    return shape if shape.gpus < size or gpus == shape.gpus else shape._replace(gpus=gpus)
