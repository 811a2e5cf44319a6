"""`place=groups`: Aryl's placement (section 5.3), best fit, the widest first.

Inelastic jobs go on the cluster's own servers, elastic ones on lent servers. Their base and the
GPUs beyond it go on different ones. So a reclaim finds servers on which nobody has its base. The
needed GPUs of a job go on the tightest server that holds them, or over as few as possible now.
Where nothing is lent this is all there is to it. The first GPUs of an allocation, in the order of
its slots, are the base of its job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool
from dlq_master.model.resources import Request, Shape, indices
from dlq_master.policy.place import consolidate
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.placement import Placement

GROUPS = Placement("groups", consolidate.fewest_now, groups=True, tightest=True)


_ALL = -1  # every bit


class HeldGroups(Protocol):
    """GPUs of one type, some of them free."""

    @property
    def free(self) -> Pool: ...


S = TypeVar("S", bound=HeldGroups)


class _Kinds(NamedTuple):
    """Sets of nodes, as bitmasks over their numbers."""

    lent: int
    based: int  # of those, where somebody has its base, or all that it holds
    flexible: int  # where there are flexible workers and nobody has its base


class PlacementGroups:
    """The servers of one plan by what is on them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._started = 0  # where bases go in this plan, as a bitmask

    def starts(self, parts: Parts) -> None:
        """A base goes there in this plan."""
        for node, _ in parts:
            self._started |= 1 << node

    def place(
        self, capacities: Sequence[S], find: Callable[[Pool], Parts | None], *, elastic: bool
    ) -> tuple[S, Parts] | None:
        """A base or an inelastic job, on the best servers of any of these capacities."""
        for step in range(4):
            for type_capacity in capacities:
                pool = self._for_base(type_capacity.free, step, elastic=elastic)
                parts = find(pool) if pool is not None else None
                if parts is not None:
                    return type_capacity, parts
        return None

    def for_flexible(self, pool: Pool) -> Iterator[Pool]:
        """The capacity for workers, the best servers first."""
        lent, based, _ = self._kinds
        based |= self._started
        for nodes in (lent & ~based, lent, _ALL):
            if (few := _only(pool, nodes)) is not None:
                yield few

    def _for_base(self, pool: Pool, step: int, *, elastic: bool) -> Pool | None:
        lent, _, flexible = self._kinds
        own, apart = ~lent, lent & ~flexible
        order = (apart, lent, own, _ALL) if elastic else (own, apart, lent, _ALL)
        return _only(pool, order[step])

    @cached_property
    def _kinds(self) -> _Kinds:
        capacity = self._cluster.capacity
        lent = based = held = 0
        seen: dict[AttemptKey, int] = {}
        for node_id in self._cluster.own.foreign:
            bit = 1 << capacity.ordinals[node_id]
            lent |= bit
            for key in capacity.claims[node_id]:
                held |= bit
                if key not in seen:
                    seen[key] = self._base_nodes(key)
                based |= seen[key] & bit
        return _Kinds(lent, based, held & ~based)

    def _base_nodes(self, key: AttemptKey) -> int:
        attempt = self._cluster.attempts[key]
        left = self._cluster.jobs[key.job_id].request.base
        nodes = 0
        for node_id, mask in (attempt.regrant or attempt.lease.allocation).slots:
            if left > 0:
                nodes |= 1 << self._cluster.capacity.ordinals[node_id]
                left -= mask.bit_count()
        return nodes


def worker_gpus(request: Request) -> int:
    """GPUs that have to be on one server, as far as that is known; by default the job is one
    worker.
    """
    if request.sizes[1:]:
        return request.sizes[1] - request.sizes[0]
    return request.gpus if request.nodes is None else request.gpus // request.nodes


def _only(pool: Pool, nodes: int) -> Pool | None:
    """As if nothing were left on other nodes; None: nothing is left on these."""
    left = ((1 << len(pool.masks)) - 1) & ~pool.buckets[0]
    if not left & ~nodes:
        return pool if left else None
    if not left & nodes:
        return None
    few = pool.emptied()
    for ordinal in indices(left & nodes):
        few.set(ordinal, pool.masks[ordinal])
    return few


def decreasing(jobs: Iterable[Job]) -> list[Job]:
    """The widest workers first; of equals, the first in line."""
    return sorted(jobs, key=lambda job: -worker_gpus(job.request))


_Found = tuple[TypeCapacity, Parts]


class Grouped:
    """The capacities of one plan, own and lent servers kept apart."""

    __slots__ = ("_capacities", "_cluster", "_outcome", "_placement", "groups")

    def __init__(
        self,
        cluster: Cluster,
        placement: Placement,
        capacities: Mapping[str, TypeCapacity],
        outcome: Outcome,
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._capacities = capacities
        self._outcome = outcome
        self.groups = PlacementGroups(cluster)

    def find(self, job_id: JobId, shape: Shape) -> _Found | None:
        """GPUs of one type for this base or inelastic job: its preferred type, if it names one,
        else the type with the best servers left.
        """
        if not self._cluster.own.foreign:
            return self._on_own(shape)
        elastic = self._cluster.elastic(self._cluster.jobs[job_id])
        every = [it for _, it in shape.of_types(self._capacities) if shape.gpus <= it.free.total]
        find = self._placement.find
        for capacities in (
            (every,) if shape.gpu_types is None else ([type_capacity] for type_capacity in every)
        ):
            found = self.groups.place(capacities, lambda pool: find(pool, shape), elastic=elastic)
            if found is not None:
                return found
        return None

    def _on_own(self, shape: Shape) -> _Found | None:
        """The same where nothing is lent: all servers are alike good."""
        find = self._placement.find
        for _, type_capacity in shape.of_types(self._capacities):
            free = type_capacity.free
            if shape.gpus <= free.total and free.total:
                parts = find(free, shape)
                if parts is not None:
                    return type_capacity, parts
        return None

    def finish(self) -> None:
        """Everybody has had their turn."""
        if len(self._outcome.chosen) > 1 and not self._outcome.outranked:
            self._widest_first()

    def _widest_first(self) -> None:
        """The starting jobs, placed once more in the order of best fit decreasing. The free GPUs
        then lie elsewhere, and may hold a job that they did not hold before, so there is another
        plan.
        """
        chosen, jobs = self._outcome.chosen, self._cluster.jobs
        widest_first = decreasing(jobs[job_id] for job_id in chosen)
        if self._only_starts() and [job.job_id for job in widest_first] == [*chosen]:
            return  # they would all get the same once more
        before = {job_id: (self._stock_of(parts), parts) for job_id, parts in chosen.items()}
        _give(before)
        made: dict[JobId, _Found] = {}
        for job in widest_first:
            found = self.find(job.job_id, self._cluster.shape(job))
            if found is None:
                break
            made[job.job_id] = found
            found[0].take(found[1])
        if len(made) < len(chosen):
            _give(made)
            made = before
            for type_capacity, parts in _together(made):
                type_capacity.take(parts)
        for job_id, parts in chosen.items():
            chosen[job_id] = made[job_id][1]
            self._outcome.exchanged |= chosen[job_id] != parts

    def _only_starts(self) -> bool:
        outcome = self._outcome
        return not (outcome.claims or outcome.withheld or outcome.floor)

    def _stock_of(self, parts: Parts) -> TypeCapacity:
        if len(self._capacities) == 1:
            (only,) = self._capacities.values()
            return only
        total, (first, *_) = self._cluster.capacity.total, parts
        return next(
            type_capacity
            for gpu_type, type_capacity in self._capacities.items()
            if total[gpu_type].masks[first.ordinal] & first.mask
        )


def _give(found: Mapping[JobId, _Found]) -> None:
    for type_capacity, parts in _together(found):
        type_capacity.give_free(parts)


def _together(found: Mapping[JobId, _Found]) -> Iterable[_Found]:
    """All parts of each capacity in one."""
    lists: dict[int, tuple[TypeCapacity, list[Part]]] = {}
    for type_capacity, parts in found.values():
        lists.setdefault(id(type_capacity), (type_capacity, []))[1].extend(parts)
    return [(type_capacity, tuple(parts)) for type_capacity, parts in lists.values()]
