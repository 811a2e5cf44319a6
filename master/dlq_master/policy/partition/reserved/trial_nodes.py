"""Nodes that are kept free for trials.

A promise counts on all other nodes, so all slot holders fit there. If some took GPUs here, the rest
for trials would lie in pieces of nodes, and a trial of two nodes would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.band import Band
from dlq_master.model.nodes.free_gpus import Part
from dlq_master.model.nodes.owned import is_own
from dlq_master.policy.partition.reserved.slot_holders import (
    SlotContest,
    SlotHolder,
    SlotSpace,
    serve,
)


class TrialNodes(NamedTuple):
    """GPUs of a node that are out of the walk for a while: free now, and only later."""

    gpu_type: str
    now: Part
    later: Part


def serve_beside(
    allocator: SlotSpace | SlotContest, waiting: Iterable[SlotHolder], gpu_type: str, nodes: int
) -> None:
    """Slots for all of them, on other nodes than so many without a slot holder. A job that finds
    none there gets one anywhere, for a promise is more than a trial. It comes before narrower jobs
    that could lie in its way.
    """
    outcome = allocator.outcome
    held: list[TrialNodes] | None = None
    for seat in waiting:
        if held is None:
            held = _hold(allocator, gpu_type, nodes)
        serve(allocator, (seat,))
        if held and seat.job_id not in outcome.chosen and seat.job_id not in outcome.claims:
            _release(allocator, held)
            held = None
            serve(allocator, (seat,))
    _release(allocator, held or ())


def _hold(allocator: SlotSpace | SlotContest, gpu_type: str, nodes: int) -> list[TrialNodes]:
    """Take the emptiest nodes without seats and trials out of the walk."""
    type_capacity = allocator.capacities.get(gpu_type)
    if type_capacity is None:
        return []
    clear = sorted(_clear(allocator, gpu_type))[: max(0, nodes)]
    found = []
    for *_, ordinal in clear:
        now = type_capacity.free.masks[ordinal]
        later = type_capacity.later.masks[ordinal]
        type_capacity.take((Part(ordinal, now | later),))
        found.append(TrialNodes(gpu_type, Part(ordinal, now), Part(ordinal, later & ~now)))
    if isinstance(allocator, SlotContest):
        allocator.spared = frozenset(ordinal for *_, ordinal in clear)
    return found


def _release(allocator: SlotSpace | SlotContest, held: Iterable[TrialNodes]) -> None:
    for gpu_type, now, later in held:
        type_capacity = allocator.capacities[gpu_type]
        if now.mask:
            type_capacity.give_free((now,))
        if later.mask:
            type_capacity.give_later((later,))
    if isinstance(allocator, SlotContest):
        allocator.spared = frozenset()
        allocator.victims = None  # there are more of them now


def _clear(
    allocator: SlotSpace | SlotContest, gpu_type: str
) -> Iterable[tuple[int, int, int, int]]:
    """Whole open nodes of the type that only best-effort work will hold. The order is by the GPUs
    that others are still leaving, then by the GPUs of that work. The last come first, since others
    are placed from the first on. Nodes that are being left come last. A job for which they are left
    has no place if they are kept instead of the former ones.
    """
    cluster = allocator.cluster
    capacity = cluster.capacity
    opened, total = capacity.open[gpu_type].masks, capacity.total[gpu_type].masks
    for ordinal, mask in enumerate(opened):
        if mask and mask == total[ordinal] and is_own(cluster.nodes[capacity.node_ids[ordinal]]):
            claims = capacity.claims.get(capacity.node_ids[ordinal], {})
            stay = {key: gpus for key, gpus in claims.items() if not _leaves(allocator, key)}
            if all(cluster.jobs[key.job_id].band >= Band.SPOT for key in stay):
                held = sum(gpus.bit_count() for gpus in stay.values())
                left = sum(gpus.bit_count() for gpus in claims.values()) - held
                yield left, held, -ordinal, ordinal


def _leaves(allocator: SlotSpace | SlotContest, key: AttemptKey) -> bool:
    leaving = allocator.cluster.attempts[key].state is AttemptState.PAUSING
    return leaving or key in allocator.outcome.outranked
