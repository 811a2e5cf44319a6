"""An allocator that preempts lower priorities: the lowest first, and as few as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.model.order.lineup import Lineup
from dlq_master.policy.place.allocation.line import Blocks, Head, RunningBlock, blocks, members
from dlq_master.policy.place.allocation.pinned import Pinned
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.allocation.type_capacity import usable
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.transit.victims import Victims

_NO_LIMIT = float("inf")


class Contest(Space):
    """A waiting job preempts running jobs of lower priority only if it fits nowhere else. It takes
    free GPUs first, then GPUs that are being released, and only then names victims.

    `at_once`: victims are gone at once and the job starts in this plan; otherwise it waits for
    them.
    """

    __slots__ = ("at_once", "below", "pinned", "victims")

    def __init__(
        self,
        cluster: Cluster,
        lineup: Lineup,
        placement: Placement,
        pinned: Pinned,
        *,
        at_once: bool,
    ) -> None:
        super().__init__(cluster, lineup, placement)
        self.pinned = pinned
        self.at_once = at_once
        # GPUs of jobs that may be preempted and that the walk has not reached.
        self.below = sum(lineup.running.gpus_by_priority.values()) - sum(
            pinned.gpus_by_priority.values()
        )
        self.victims: Victims | None = None  # made when the first job needs one
        self.spent = False

    def priorities(self) -> Iterable[int]:
        """The priorities of waiting and running jobs, down to the last waiting one."""
        waiting = self.lineup.waiting.priorities
        if not waiting:
            return ()
        last = max(waiting)
        return sorted(
            {
                *waiting,
                *(priority for priority in self.lineup.running.by_priority if priority <= last),
            }
        )

    def widest(self) -> float:
        """The GPUs that are left and those that lower priorities hold."""
        return _NO_LIMIT if self.cluster.ordering.promotes else self.most_left() + self.below

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """The running jobs of this priority."""
        return blocks(self.lineup, priority, apart=apart)

    def keep(self, priority: int, block: RunningBlock) -> None:
        """Running jobs that are not preempted by now stay."""
        victims = self.victims
        if victims is None and not self.pinned.gpus_by_priority.get(priority):
            self.below -= block.gpus
            return
        pinned, places = self.pinned.job_ids, self.lineup.running.places
        for job_id in members(self.lineup, priority, block, in_order=victims is not None):
            if job_id not in pinned and (victims is None or victims.keep(job_id)):
                self.below -= places[job_id].gpus

    def serve(self, priority: int, head: Head) -> bool:
        """Start the job, keep GPUs that are being released, preempt others, or reserve."""
        job_id = head[1]
        if job_id in self.outcome.claims:  # nodes that others leave are kept for it already
            return True
        found = self.find_free(head)
        if found is not None:
            type_capacity, parts = found
            self.outcome.chosen[job_id] = parts
            type_capacity.take(parts)
            return True
        return self.claim(head) or self.force(priority, head) or self.reserve(head)

    def force(self, priority: int, head: Head) -> bool:
        """If the job fits without lower priorities: preempt them and take their GPUs."""
        position, job_id, shape, _ = head
        if not self.below or shape.gpus > self.most_left() + self.below:
            return False
        if self.victims is None:
            self.victims = Victims(
                self.cluster,
                self.placement,
                self.capacities,
                self._after(priority, position),
                self.contested,
                at_once=self.at_once,
            )
        own = self.kept.get(job_id) if self.kept else None
        if own is not None:
            own[0].give_free(own[1])
        found = self.victims.find(shape)
        if own is not None:
            own[0].take(own[1])
        if found is None:
            return False
        front, parts = found
        if self.at_once:
            self.outcome.chosen[job_id] = parts
        else:
            self.outcome.claims[job_id] = False
        front.type_capacity.take(parts)
        for key in self.victims.make_leave(front, parts):
            self.outcome.outranked[key] = job_id
            self.below -= self.lineup.running.places[key.job_id].gpus
        return True

    def contested(self, attempt: Attempt) -> list[tuple[str, Parts]]:
        """The GPUs that others may have if this attempt leaves, by GPU type."""
        capacity = self.cluster.capacity
        return usable(capacity, capacity.parts(attempt.lease.allocation))

    def _after(self, priority: int, position: int) -> list[JobId]:
        """Running jobs that have not had their turn, the lowest ranked last."""
        running, pinned = self.lineup.running, self.pinned.job_ids
        positions, ranked = running.ranked(priority)
        jobs = ranked[bisect_right(positions, position) :]
        for lower in sorted(running.by_priority):
            if lower > priority:
                jobs += running.in_order(lower)
        return [job for job in jobs if job not in pinned] if pinned else jobs
