"""Jobs that may run on several numbers of GPUs: bases first, then what is left.

First the walk: every job stands for its fewest GPUs. Its GPUs beyond them are there for others, as
GPUs that it leaves. Then the size stage shares the free GPUs. Running jobs are grown, left alone or
shrunk, and at least their bases stay in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape
from dlq_master.policy.partition.reserved.slot_holders import (
    SlotContest,
    SlotSpace,
    ends_now,
    pinned_too,
)
from dlq_master.policy.place.allocation.allocator import walk
from dlq_master.policy.place.allocation.line import NOBODY_RUNS, Blocks
from dlq_master.policy.place.allocation.masks import (
    Masks,
    count,
    kept,
    parts_of,
    spared_part,
    without,
)
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.pinned import pinned_but
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.allocation.type_capacity import usable
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.size.growth import ElasticQuestion, HeldByElastic, SizeGrowth
from dlq_master.policy.transit.contest import Contest


class ElasticWalk:
    """The jobs that start and their GPUs, the jobs that leave, and the jobs that go on with
    others.
    """

    def __init__(self, question: ElasticQuestion) -> None:
        self.question = question
        self.cluster = question.cluster
        self.held = self._split()
        self.allocator = self._ground()
        self.capacities = self.allocator.capacities
        if isinstance(self.allocator, SlotSpace | SlotContest) and question.seating is not None:
            question.seating.serve(self.allocator)
            if question.young:
                self._leave_alone(question.young)

    def walked(self) -> Outcome:
        """Bases by the walk, and then what is left."""
        outcome = walk(self.allocator)
        self._size(outcome)
        return outcome

    def _split(self) -> dict[JobId, HeldByElastic]:
        """Of all elastic jobs that may be resized."""
        capacity = self.cluster.capacity
        found: dict[JobId, HeldByElastic] = {}
        if not (self.question.movable and self.cluster.running.sized):
            return found
        capacity.ready()
        jobs, elastic = self.cluster.jobs, self.cluster.elastic
        sized = self.cluster.running.sized.intersection(self.question.movable)
        for job_id in sorted(it for it in sized if elastic(jobs[it])):
            job = jobs[job_id]
            attempt = self.cluster.live_attempt(job)
            if attempt is None or job.state is not JobState.QUEUED or self._ends(job):
                continue
            ((gpu_type, parts),) = capacity.parts(attempt.lease.allocation).items()
            base = kept(job, parts, job.request.base, in_order=self.question.placement.groups)
            rest = without(dict(parts), base)
            if rest or job_id not in self.question.tied:
                found[job_id] = HeldByElastic(gpu_type, base, rest)
        return found

    def _ends(self, job: Job) -> bool:
        return self.question.seating is not None and ends_now(self.cluster, job)

    def _leave_alone(self, job_ids: Collection[JobId]) -> None:
        """These keep what they have, unless a seat has taken some of it."""
        for job_id in self.held.keys() & job_ids:
            held = self.held[job_id]
            type_capacity = self.allocator.capacities[held.gpu_type]
            there = type_capacity.free.masks if self.question.at_once else type_capacity.later.masks
            if all(mask & there[node] == mask for node, mask in held.extra.items()):
                type_capacity.take(parts_of(held.extra))
                del self.held[job_id]

    def _ground(self) -> Space:
        asked = self.question
        seating = asked.seating
        if seating is not None and not (asked.movable or seating.going or seating.yielding):
            return SlotSpace(self.cluster, asked.lineup, asked.placement)
        movable = asked.movable if asked.preempts else frozenset[JobId]()
        if asked.protected:
            movable = [job_id for job_id in movable if job_id not in asked.protected]
        lineup = self._standing() if asked.preempts else asked.lineup
        places = lineup.running.places
        pinned = pinned_but(places, movable)
        on = (self.cluster, lineup, self._sparing())
        allocator: _Bases
        if asked.seating is None:
            allocator = _Bases(*on, pinned, at_once=asked.at_once)
        else:
            pinned = pinned_too(places, pinned, asked.seating.fixed)
            allocator = _SlotBases(*on, pinned, at_once=asked.at_once)
        allocator.preempts = asked.preempts
        allocator.bases = {job_id: held.base for job_id, held in self.held.items()}
        for held in self.held.values():
            type_capacity = allocator.capacities[held.gpu_type]
            if held.extra:
                give = type_capacity.give_free if asked.at_once else type_capacity.give_later
                give(parts_of(held.extra))
        return allocator

    def _sparing(self) -> Placement:
        """The placement, on each node with GPUs first that nobody has grown into."""
        spared: Masks = {}
        for held in self.held.values():
            for node, mask in held.extra.items():
                spared[node] = spared.get(node, 0) | mask
        placement = self.question.placement
        if not spared:
            return placement
        find = placement.find

        def sparing(pool: Pool, shape: Shape) -> Parts | None:
            parts = find(pool, shape)
            if parts is None:
                return None
            return tuple([spared_part(part, pool.masks[part.ordinal], spared) for part in parts])

        return placement._replace(find=sparing, tightest=False)

    def _standing(self) -> Lineup:
        """The line-up in which who may be resized stands for its base alone."""
        lineup = self.question.lineup
        widths = {job_id: count(held.base) for job_id, held in self.held.items() if held.extra}
        return lineup._replace(running=lineup.running.on(widths)) if widths else lineup

    def _size(self, outcome: Outcome) -> None:
        """Share what is left, type by type, and find the GPUs."""
        jobs = self.cluster.jobs
        starts = {
            job_id: parts
            for job_id, parts in outcome.chosen.items()
            if (job := jobs[job_id]).request.sizes
            and self.cluster.elastic(job)
            and job_id not in self.question.tied
        }
        if not (starts or self.held):
            return
        outranked = {key.job_id for key in outcome.outranked}
        runs = {job_id: it for job_id, it in self.held.items() if job_id not in outranked}
        for gpu_type, type_capacity in self.capacities.items():
            here = {job_id: held for job_id, held in runs.items() if held.gpu_type == gpu_type}
            new = {job_id: parts for job_id, parts in starts.items() if self._is(parts, gpu_type)}
            if here or new:
                grouped = self.allocator.grouped
                groups = None if grouped is None else grouped.groups
                SizeGrowth(
                    self.question, outcome, gpu_type, type_capacity, here, new, groups
                ).settle()

    def _is(self, parts: Parts, gpu_type: str) -> bool:
        owned = self.cluster.capacity.total[gpu_type].masks
        return all(mask & owned[node] == mask for node, mask in parts)


class _Bases(Contest):
    """Of who runs only the base is contested: the rest is free already."""

    bases: dict[JobId, Masks]
    preempts: bool

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """Nobody has to be come to where nobody has to leave."""
        return super().blocks(priority, apart=apart) if self.preempts else NOBODY_RUNS

    def contested(self, attempt: Attempt) -> list[tuple[str, Parts]]:
        base = self.bases.get(attempt.key.job_id)
        if base is None:
            return super().contested(attempt)
        capacity = self.cluster.capacity
        (gpu_type,) = capacity.parts(attempt.lease.allocation)
        return [(gpu_type, parts_of(base))]


class _SlotBases(_Bases, SlotContest):
    """Beside those who have been seated."""


def somebody(cluster: Cluster, job_ids: Iterable[JobId]) -> bool:
    """Whether any of these running jobs might be resized though no job waits. A job on its most
    GPUs then keeps them: nobody is short of any.
    """
    jobs, sized = cluster.jobs, cluster.running.sized
    for job_id in sized.intersection(job_ids) if sized else ():
        job = jobs[job_id]
        attempt = cluster.live_attempt(job) if cluster.elastic(job) else None
        if attempt is not None and attempt.lease.allocation.width < job.request.sizes[-1]:
            return True
    return False


def movable(
    cluster: Cluster, keys: Collection[AttemptKey], stay: Collection[JobId]
) -> frozenset[JobId]:
    """The jobs of these attempts that a plan may touch: neither stopping nor silent, and on nodes
    that take new work. An elastic job must not be held, and none of its GPUs withheld. `stay`: jobs
    that it leaves alone.
    """
    cluster.capacity.ready()
    places = cluster.running.places
    found = [key for key in keys if key[0] in places]
    if cluster.capacity.closed or cluster.running.sized:
        found = [key for key in found if key[0] not in stay and _may_move(cluster, key)]
    return frozenset([job_id for job_id, _ in found])


def _may_move(cluster: Cluster, key: AttemptKey) -> bool:
    capacity, attempt = cluster.capacity, cluster.attempts[key]
    if capacity.closed and not capacity.closed.isdisjoint(attempt.lease.allocation.node_ids):
        return False
    job = cluster.jobs[key.job_id]
    if not cluster.elastic(job):
        return True
    if attempt.resize is not None:
        return False
    if job.state is not JobState.QUEUED:  # held once it stops: it would not go on
        return False
    whole = capacity.parts(attempt.lease.allocation)
    return len(whole) == 1 and dict(usable(capacity, whole)) == whole
