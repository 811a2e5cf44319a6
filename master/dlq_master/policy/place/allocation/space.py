"""An allocator without preemption: GPUs that are free now or are being released."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest, make_part, up_to
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place.allocation.allocator import walk
from dlq_master.policy.place.allocation.grouped import Grouped
from dlq_master.policy.place.allocation.line import NOBODY_RUNS, Blocks, Head, RunningBlock
from dlq_master.policy.place.allocation.mixed import start_mixed
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity, usable
from dlq_master.policy.place.consolidate import is_gang
from dlq_master.policy.place.ilp import Balance
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.whole.batch import PlacementBatch

_NO_LIMIT = float("inf")
# The last placed shape, its node, the GPUs of its type that were free then, and their capacity.
_Again = tuple[Shape, int, int, TypeCapacity]


class Space:
    """A job that fits into the free GPUs starts. A job that fits only with GPUs that are being
    released claims them. A promoted job that does not fit reserves free GPUs where it will fit
    soonest. Lower priorities do not get claimed or reserved GPUs.

    `blocking`: no job passes the first one that does not start.
    """

    __slots__ = (
        "_again",
        "_barred",
        "_goes_on",
        "balance",
        "blocking",
        "capacities",
        "cluster",
        "grouped",
        "kept",
        "lineup",
        "outcome",
        "placement",
        "spent",
    )

    def __init__(
        self, cluster: Cluster, lineup: Lineup, placement: Placement, *, blocking: bool = False
    ) -> None:
        capacity = cluster.capacity
        capacity.ready()
        self.cluster = cluster
        self.lineup = lineup
        self.placement = placement
        self.blocking = blocking
        self.balance = Balance(cluster) if placement.balances else None
        self.outcome = Outcome()
        # Free GPUs that are kept for gangs that lost a node.
        self.kept: dict[JobId, tuple[TypeCapacity, Parts]] = {}
        self.spent = not capacity.free_devices
        self.capacities: dict[str, TypeCapacity] = {}
        for gpu_type, pool in capacity.free.items():
            self.capacities[gpu_type] = TypeCapacity(pool)
        self._again: _Again | None = None
        self.grouped: Grouped | None = None
        if placement.groups:
            self.grouped = Grouped(cluster, placement, self.capacities, self.outcome)
        # Whether the next job of a shape gets the node of the one before, if it fits there: that
        # node is the tightest.
        chooses = self.grouped is not None and bool(cluster.own.foreign)
        self._goes_on = placement.tightest and not placement.balances and not chooses
        self._goes_on = self._goes_on and not lineup.out
        self._barred = 0  # suspended jobs that the walk has reached
        if capacity.soon:
            for gpu_type, parts in usable(capacity, capacity.soon_parts()):
                self.capacities[gpu_type].give_later(parts)

    walked = walk

    def priorities(self) -> Iterable[int]:
        """The priorities of waiting jobs."""
        return self.lineup.waiting.priorities

    def widest(self) -> float:
        """The GPUs that are left. No limit where a job that fits nowhere blocks or reserves."""
        if self.blocking or self.cluster.ordering.promotes:
            return _NO_LIMIT
        return self.most_left()

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """No blocks: all running jobs stay."""
        return NOBODY_RUNS

    def keep(self, priority: int, block: RunningBlock) -> None:
        """Nothing to do: no running job can be preempted."""

    def bar(self, rank: tuple[float, float]) -> None:
        """Take away the GPUs to which these suspended jobs come back."""
        out = self.lineup.out
        while self._barred < len(out) and out[self._barred][:2] <= rank:
            for gpu_type, parts in out[self._barred].parts.items():
                self.capacities[gpu_type].bar(parts)
            self._barred += 1

    def serve(self, priority: int, head: Head) -> bool:
        """Start the job, claim GPUs for it, or reserve."""
        _, job_id, shape, _ = head
        found = self.find_free(head)
        if found is not None:
            type_capacity, parts = found
            self.outcome.chosen[job_id] = parts
            if (
                len(self.capacities) == 1
                and self.grouped is None
                and not self.cluster.groups
                and shape.gpus == type_capacity.free.total
            ):
                self.spent = True  # the last free GPUs
                return True
            type_capacity.take(parts)
        elif self.blocking:
            self.claim(head)
            self.outcome.heads[""] = job_id
            self.spent = True
            return True
        elif not (self.claim(head) or self.reserve(head)):
            return False
        for other in self.capacities.values():
            if other.free.total:
                return True
        # The next member of a group may still get GPUs that are released soon.
        self.spent = not self.cluster.groups
        return True

    def finish(self) -> None:
        """Place all starting jobs together, if the placement does that. Then give remaining GPUs of
        mixed types to jobs that take them.
        """
        if self.grouped is not None:
            self.grouped.finish()
        if self.placement.arranges is not None and self.outcome.chosen:
            self._arrange()
        if len(self.capacities) > 1 and not self.blocking:
            waiting, priorities = self.lineup.waiting, self.priorities()
            start_mixed(
                self.cluster, self.placement, self.capacities, waiting, priorities, self.outcome
            )

    def _arrange(self) -> None:
        pools = {
            gpu_type: type_capacity.free for gpu_type, type_capacity in self.capacities.items()
        }
        batch, fixed = PlacementBatch(self.cluster, self.placement), self._fixed()
        for gpu_type, moved, told in batch.arrange(pools, self.outcome.chosen, fixed):
            self._exchange(self.capacities[gpu_type], moved)
            self.outcome.told.update(dict.fromkeys(moved, told))

    def most_left(self) -> int:
        """The most GPUs of one type that are left, free now or later."""
        most = 0
        for type_capacity in self.capacities.values():
            if type_capacity.later.total > most:
                most = type_capacity.later.total
        return most

    def find_free(self, head: Head) -> tuple[TypeCapacity, Parts] | None:
        """GPUs that are free now, for a job that then starts on them."""
        shape = head[2]
        again = self._again
        if again is not None and again[0] is shape:
            _, node, left, type_capacity = again
            mask = type_capacity.free.masks[node]
            if type_capacity.free.total == left and mask.bit_count() >= shape.gpus:
                self._again = shape, node, left - shape.gpus, type_capacity
                return type_capacity, (make_part((node, lowest(mask, shape.gpus))),)
        found = self._find_beside(head) if self.lineup.out else self._find(head)
        if found is not None and found[0].free.traits.doubted:
            self._tell_doubt(head, *found)
        if found is not None and self._goes_on and len(found[1]) == 1:
            type_capacity, ((node, _),) = found
            self._again = shape, node, type_capacity.free.total - shape.gpus, type_capacity
        else:
            self._again = None
        return found

    def _tell_doubt(self, head: Head, type_capacity: TypeCapacity, parts: Parts) -> None:
        """Note that the start uses suspected stragglers, or leaves them free."""
        pool, (_, job_id, shape, _) = type_capacity.free, head
        if not is_gang(pool, shape):
            return
        mine = sum(1 << part.ordinal for part in parts)
        left = pool.traits.doubted & ~pool.buckets[0] & ~mine
        for nodes, words in (
            (pool.traits.doubted & mine, "on {}, suspected to slow gangs down"),
            (left, "not on {}, suspected to slow gangs down"),
        ):
            if nodes > 0:
                names = ", ".join(pool.node_ids[ordinal] for ordinal in indices(nodes))
                self.outcome.told[job_id] = words.format(names)
                return

    def _find_beside(self, head: Head) -> tuple[TypeCapacity, Parts] | None:
        """Free GPUs to which no suspended job comes back, if these are enough; else any."""
        spared: list[tuple[TypeCapacity, Parts]] = []
        for out in self.lineup.out[self._barred :]:
            for gpu_type, parts in out.parts.items():
                type_capacity = self.capacities[gpu_type]
                masks = type_capacity.free.masks
                there = tuple([make_part((node, mask & masks[node])) for node, mask in parts])
                type_capacity.take(there)
                spared.append((type_capacity, there))
        found = self._find(head)
        for type_capacity, there in spared:
            type_capacity.give_free(there)
        return self._find(head) if found is None and spared else found

    def _find(self, head: Head) -> tuple[TypeCapacity, Parts] | None:
        _, job_id, shape, _ = head
        if self.grouped is not None:
            return self.grouped.find(job_id, shape)
        for _, type_capacity in shape.of_types(self.capacities):
            free = type_capacity.free
            if shape.gpus <= free.total:
                parts = self.placement.find(free, shape)
                if parts is not None:
                    if self.balance is not None:
                        job = self.cluster.jobs[job_id]
                        parts, told = self.balance.choose(job, free, shape, parts)
                        if told:
                            self.outcome.told[job_id] = told
                    return type_capacity, parts
        return self._make_room(head) if self.placement.repacks else None

    def claim(self, head: Head) -> bool:
        """Claim GPUs that are being released for a job that fits with them."""
        _, job_id, shape, _ = head
        for _, type_capacity in shape.of_types(self.capacities):
            parts = type_capacity.find_later(self.placement, shape)
            if parts is not None:
                self.outcome.claims[job_id] = False
                type_capacity.take(parts)
                return True
        return False

    def reserve(self, head: Head) -> bool:
        """Reserve free GPUs for a promoted job, where it will fit soonest."""
        position, job_id, shape, _ = head
        if position >= 0:
            return False
        opened = self.cluster.capacity.open
        for gpu_type, type_capacity in shape.of_types(self.capacities):
            parts = closest(self.placement, type_capacity.free, opened[gpu_type], shape)
            if parts is not None:
                self.outcome.claims[job_id] = True
                type_capacity.take(parts)
                break
        return True

    def _make_room(self, head: Head) -> tuple[TypeCapacity, Parts] | None:
        """GPUs for a job that fits if the starting jobs are packed anew."""
        shape, chosen = head[2], self.outcome.chosen
        batch, fixed = PlacementBatch(self.cluster, self.placement), self._fixed()
        for gpu_type, type_capacity in shape.of_types(self.capacities) if chosen else ():
            found = batch.make_room(gpu_type, type_capacity.free, shape, chosen, fixed)
            if found is not None:
                parts, moved = found
                self._exchange(type_capacity, moved)
                told = f"packed anew with {len(moved)} others to make room"
                self.outcome.told.update(dict.fromkeys((head[1], *moved), told))
                return type_capacity, parts
        return None

    def _fixed(self) -> set[JobId]:
        """Starting jobs whose GPUs must not be exchanged: they preempt others for them, or
        suspended jobs come back to them.
        """
        fixed = set(self.outcome.outranked.values())
        for out in self.lineup.out:
            for parts in out.parts.values():
                own = dict(parts)
                for job_id, chosen in self.outcome.chosen.items():
                    if any(mask & own.get(node, 0) for node, mask in chosen):
                        fixed.add(job_id)
        return fixed

    def _exchange(self, type_capacity: TypeCapacity, moved: Mapping[JobId, Parts]) -> None:
        chosen = self.outcome.chosen
        self.outcome.exchanged = True
        self._again = None
        for job_id in moved:
            type_capacity.give_free(chosen[job_id])
        for job_id, parts in moved.items():
            chosen[job_id] = parts
            type_capacity.take(parts)


def closest(placement: Placement, free: Pool, opened: Pool, shape: Shape) -> Parts | None:
    """The free GPUs that bring this shape closest to fitting; withheld, they only become more.

    They are those of the nodes with the most free GPUs among all that could ever hold a part of it.
    No other job gets GPUs there, so the job starts as soon as work there has ended. None if the
    open nodes could not hold it, were they empty.
    """
    if shape.avoid or shape.traits:
        free, opened = free.allowed(shape), opened.allowed(shape)
    if placement.find(opened, shape) is None:
        return None
    if placement.any_gpus(shape):
        width = shape._replace(gpus=min(shape.gpus, free.total), nodes=None)
        return (placement.find(free, width) or ()) if width.gpus else ()
    return _fullest(free, opened, shape)


def _fullest(free: Pool, opened: Pool, shape: Shape) -> Parts:
    nodes = shape.nodes or opened.fewest_nodes(shape.gpus)
    per_node = -(-shape.gpus // nodes)
    candidates = (
        node
        for bucket in reversed(free.buckets[1:])
        for node in indices(bucket)
        if opened.masks[node].bit_count() >= per_node
    )
    return tuple(
        Part(node, up_to(free.masks[node], per_node)) for node in islice(candidates, nodes)
    )
