"""Keeps GPUs free for the jobs of one queue, the first to be served, so that they start at once.

Jobs of the queue and the free GPUs that are kept for the next ones make up its floor. All other
jobs without a slot get what is beyond it. Nobody has to leave for it: a floor that other jobs hold
fills as they end. A job with a slot comes first, and takes GPUs of the floor where it finds no
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.policy.partition.profiling import node_gpus
from dlq_master.policy.partition.quotas import QueueFloor, held_by
from dlq_master.policy.partition.reserved.slot_holders import SlotContest, SlotHolder, SlotSpace
from dlq_master.policy.partition.reserved.trials import serve_all, withhold
from dlq_master.policy.promise.capacity.grids import home_type, own_pool
from dlq_master.policy.trial.rules import TrialRules


def serve_beside_floor(
    allocator: SlotSpace | SlotContest,
    waiting: Sequence[SlotHolder],
    rules: TrialRules | None,
    floor: QueueFloor,
) -> None:
    """Slot holders and trials, the former beside the floor if they can. The walk then keeps the
    floor from the jobs behind those of the queue.
    """
    cluster = allocator.cluster
    home = home_type(cluster)
    size = node_gpus(cluster, home)
    left = _left(allocator, floor)
    serve_all(allocator, waiting, rules, ceil(left / size) if size else 0)

    def before(priority: int) -> None:
        if allocator.outcome.floor is None and _queue_at(allocator, priority) != floor.queue:
            kept = withhold(allocator, home, _left(allocator, floor))
            allocator.outcome.floor = kept, floor.queue

    allocator.before = before


def _left(allocator: SlotSpace | SlotContest, floor: QueueFloor) -> int:
    """The floor without the GPUs that jobs of the queue hold, or get in this plan."""
    outcome = allocator.outcome
    return floor_left(allocator.cluster, floor, chain(outcome.chosen, outcome.claims))


def floor_left(cluster: Cluster, floor: QueueFloor, starting: Iterable[JobId] = ()) -> int:
    """The free GPUs that the floor needs beside those that jobs of its queue hold or get."""
    held = held_by(cluster, lambda queue: queue)[floor.queue]
    for job_id in starting:
        held += _gpus(cluster, job_id, floor.queue)
    total = own_pool(cluster, home_type(cluster)).total
    return max(0, floor.gpus(total) - held)


def _gpus(cluster: Cluster, job_id: JobId, queue: str) -> int:
    job = cluster.jobs[job_id]
    return 0 if job.queue != queue or job.request.without_gpus else job.gpus_now


def _queue_at(allocator: SlotSpace | SlotContest, priority: int) -> str:
    """The queue of this priority: each queue stands in priorities of its own."""
    shapes = allocator.lineup.waiting.by_priority.get(priority)
    if shapes:
        first = next(iter(next(iter(shapes.values()))))
    else:
        first = next(iter(allocator.lineup.running.by_priority[priority]))
    return allocator.cluster.jobs[first].queue
