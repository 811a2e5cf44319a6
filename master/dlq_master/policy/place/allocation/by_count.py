"""An allocator that counts GPUs only, as the reference simulators do."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.allocator import walk
from dlq_master.policy.place.allocation.line import Blocks, Head, RunningBlock, blocks, members
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.pinned import Pinned
from dlq_master.policy.place.allocation.type_capacity import usable
from dlq_master.policy.place.placement import Placement


class Counts:
    """All jobs, waiting or running, take from one number: a job that fits into the rest runs, the
    others do not. The exact GPUs are chosen when every job has had its turn.

    `at_once`: a leaving job is gone at once, so that its GPUs start others in this plan. Otherwise
    jobs that fit into the free GPUs start now and the rest when the others have left.
    """

    __slots__ = (
        "at_once",
        "barred",
        "cluster",
        "left",
        "lineup",
        "outcome",
        "pinned",
        "placement",
        "served",
        "spent",
    )

    def __init__(
        self,
        cluster: Cluster,
        lineup: Lineup,
        placement: Placement,
        pinned: Pinned,
        *,
        at_once: bool,
    ) -> None:
        cluster.capacity.ready()
        self.cluster = cluster
        self.lineup = lineup
        self.placement = placement
        self.pinned = pinned
        self.at_once = at_once
        self.outcome = Outcome()
        self.spent = False
        self.left = {
            gpu_type: pool.total - pinned.gpus_by_type.get(gpu_type, 0)
            for gpu_type, pool in cluster.capacity.open.items()
        }
        self.served: list[tuple[JobId, str, Shape]] = []
        self.barred: list[int] = []  # of each suspended job so far: how many were served before

    walked = walk

    def priorities(self) -> Sequence[int]:
        """All in which somebody waits or runs."""
        return sorted({*self.lineup.waiting.priorities, *self.lineup.running.by_priority})

    def widest(self) -> float:
        """As wide as the rest; running jobs have been counted neither as free nor as taken yet."""
        return max(self.left.values(), default=0)

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """Everybody who runs in this priority."""
        return blocks(self.lineup, priority, apart=apart, singly=True)

    def keep(self, priority: int, block: RunningBlock) -> None:
        """All of them if they fit together, else each that fits."""
        if len(self.left) == 1 and not self.pinned.gpus_by_priority.get(priority):
            (gpu_type,) = self.left
            if block.gpus <= self.left[gpu_type]:
                self.left[gpu_type] -= block.gpus
                return
        for job_id in members(self.lineup, priority, block, in_order=True):
            if job_id not in self.pinned.job_ids:
                self._keep_one(job_id)

    def bar(self, rank: tuple[float, float]) -> None:
        """The free GPUs to which suspended jobs come back are counted in."""
        out, free = self.lineup.out, self.cluster.capacity.free
        while len(self.barred) < len(out) and out[len(self.barred)][:2] <= rank:
            for gpu_type, parts in out[len(self.barred)].parts.items():
                masks = free[gpu_type].masks
                self.left[gpu_type] -= sum([(mask & masks[at]).bit_count() for at, mask in parts])
            self.barred.append(len(self.served))

    def serve(self, priority: int, head: Head) -> bool:
        """It is counted in."""
        _, job_id, shape, _ = head
        for gpu_type, left in shape.of_types(self.left):
            if shape.gpus <= left:
                self.left[gpu_type] -= shape.gpus
                self.served.append((job_id, gpu_type, shape))
                return True
        return False

    def finish(self) -> None:
        """Name the GPUs of those that were counted in."""
        if not self.served:
            return
        capacity, outcome = self.cluster.capacity, self.outcome
        free = {gpu_type: pool.copy() for gpu_type, pool in capacity.free.items()}
        if self.at_once:
            for key in outcome.outranked:
                held = capacity.parts(self.cluster.attempts[key].lease.allocation)
                for gpu_type, parts in usable(capacity, held):
                    free[gpu_type].give(parts)
        out = list(zip(self.barred, self.lineup.out, strict=False))
        for at, (job_id, gpu_type, shape) in enumerate(self.served):
            while out and out[0][0] <= at:
                for kind, parts in out.pop(0)[1].parts.items():
                    free[kind].take(parts)
            found = self.placement.find(free[gpu_type], shape)
            if found is None:
                outcome.claims[job_id] = False
            else:
                free[gpu_type].take(found)
                outcome.chosen[job_id] = found

    def _keep_one(self, job_id: JobId) -> None:
        attempt = self.cluster.live_attempt(self.cluster.jobs[job_id])
        held = self.cluster.capacity.parts(attempt.lease.allocation) if attempt else {}
        if attempt is None or not held:  # its GPUs are gone: they are not in the count either
            return
        gpu_type = next(iter(held))
        gpus = self.lineup.running.places[job_id].gpus
        if gpus <= self.left[gpu_type]:
            self.left[gpu_type] -= gpus
        else:
            self.outcome.outranked[attempt.key] = self.served[-1][0]
