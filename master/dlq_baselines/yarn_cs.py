"""An allocator for static quotas: each part of the cluster has its GPUs and its own line."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.order.lineup import Lineup
from dlq_master.policy.partition.quotas import REST, Quotas, Room
from dlq_master.policy.partition.stage import Whole
from dlq_master.policy.place.allocation.allocator import walk
from dlq_master.policy.place.allocation.line import Head
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.placement import Placement, PlaceStage


class Quota(Space):
    """In each part the first job that does not start blocks all behind it, and no other part.

    A job starts if its part then holds no more than its quota, and the GPUs are free. One that is
    wider than the quota starts when its part holds nothing: it would wait for ever. Jobs without
    GPUs stand in the same lines, and take nothing of a quota.
    """

    __slots__ = ("_part", "_quotas", "room")

    def __init__(
        self, cluster: Cluster, lineup: Lineup, placement: Placement, quotas: Quotas
    ) -> None:
        super().__init__(cluster, lineup, placement, blocking=True)
        self.room = quotas.room(cluster)
        self._quotas = quotas
        self._part = REST

    def walked(self) -> Outcome:
        """One walk for each part, in the order of the quotas."""
        for part in self.room.limits:
            self.turn_of(part)
            walk(self)
        return self.outcome

    def turn_of(self, part: str) -> None:
        """The next walk is over this part's queues."""
        self._part = part
        self.spent = False

    def priorities(self) -> Sequence[int]:
        """Those in which jobs of the part wait."""
        jobs, by_priority = self.cluster.jobs, self.lineup.waiting.by_priority
        found = []
        for priority in self.lineup.waiting.priorities:
            first = next(iter(next(iter(by_priority[priority].values()))))
            if self._quotas.part_of(jobs[first].queue) == self._part:
                found.append(priority)
        return found

    def serve(self, priority: int, head: Head) -> bool:
        """It starts, or its part is through."""
        _, job_id, shape, _ = head
        within = self.room.allows(self._part, shape.real_gpus)
        found = self.find_free(head) if within else None
        if found is None:
            if within:
                self.claim(head)
            self.outcome.heads[self._part] = job_id
            self.spent = True
            return True
        type_capacity, parts = found
        self.outcome.chosen[job_id] = parts
        type_capacity.take(parts)
        self.room.held[self._part] += shape.real_gpus
        return True


class QueueByQueue(Whole):
    """Each queue has a static quota, and a line of its own."""

    quotas: Quotas

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas

    def free(self, cluster: Cluster, lineup: Lineup, place: PlaceStage) -> Space:
        return Quota(cluster, lineup, place.placement, self.quotas)

    def divided(self, quotas: Quotas) -> QueueByQueue:
        return QueueByQueue(quotas)

    def part_of(self, queue: str) -> str:
        return self.quotas.part_of(queue)

    def room(self, cluster: Cluster) -> Room | None:
        return self.quotas.room(cluster)
