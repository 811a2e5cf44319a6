"""`place=groups`: chooses the GPU type and the server group for each job, and tidies up at the
end of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.groups import PlacementGroups, decreasing
from dlq_master.policy.place.placement import Placement

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
            for type_capacity, parts in made.values():
                type_capacity.take(parts)
        for job_id, parts in chosen.items():
            chosen[job_id] = made[job_id][1]
            self._outcome.exchanged |= chosen[job_id] != parts

    def _only_starts(self) -> bool:
        """Whether nothing has been taken but for those that start."""
        return not (self._outcome.claims or self._outcome.withheld)

    def _stock_of(self, parts: Parts) -> TypeCapacity:
        total, (first, *_) = self._cluster.capacity.total, parts
        return next(
            type_capacity
            for gpu_type, type_capacity in self._capacities.items()
            if total[gpu_type].masks[first.ordinal] & first.mask
        )


def _give(found: Mapping[JobId, _Found]) -> None:
    for type_capacity, parts in found.values():
        type_capacity.give_free(parts)
