"""Whole nodes on which nobody is seated: those that are always for trials.

A promise counts on all other nodes, so all seats fit there; were some of them taken here, what is
left for trials would lie in pieces of nodes, and a trial of two nodes would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.lane import Lane
from dlq_master.model.nodes.free_gpus import Part
from dlq_master.model.nodes.owned import is_own
from dlq_master.policy.walk.seats import Seat, SlotContest, SlotSpace, serve


class HeldFloor(NamedTuple):
    """GPUs of a node that are out of the walk for a while: free now, and only later."""

    gpu_type: str
    now: Part
    later: Part


def serve_beside(
    ground: SlotSpace | SlotContest, waiting: Iterable[Seat], gpu_type: str, nodes: int
) -> None:
    """Seats for all of them, on other nodes than so many that hold no seat; who finds none there
    gets one anywhere, for a promise is more than a trial, and before those who are narrower and
    could lie in its way."""
    outcome = ground.outcome
    held: list[HeldFloor] | None = None
    for seat in waiting:
        if held is None:
            held = _hold(ground, gpu_type, nodes)
        serve(ground, (seat,))
        if held and seat.job_id not in outcome.chosen and seat.job_id not in outcome.claims:
            _release(ground, held)
            held = None
            serve(ground, (seat,))
    _release(ground, held or ())


def _hold(ground: SlotSpace | SlotContest, gpu_type: str, nodes: int) -> list[HeldFloor]:
    """Take the emptiest nodes without seats and trials out of the walk."""
    stock = ground.stocks.get(gpu_type)
    if stock is None:
        return []
    clear = sorted(_clear(ground, gpu_type))[: max(0, nodes)]
    found = []
    for *_, ordinal in clear:
        now = stock.free.masks[ordinal]
        later = stock.later.masks[ordinal]
        stock.take((Part(ordinal, now | later),))
        found.append(HeldFloor(gpu_type, Part(ordinal, now), Part(ordinal, later & ~now)))
    if isinstance(ground, SlotContest):
        ground.spared = frozenset(ordinal for *_, ordinal in clear)
    return found


def _release(ground: SlotSpace | SlotContest, held: Iterable[HeldFloor]) -> None:
    for gpu_type, now, later in held:
        stock = ground.stocks[gpu_type]
        if now.mask:
            stock.give_free((now,))
        if later.mask:
            stock.give_later((later,))
    if isinstance(ground, SlotContest):
        ground.spared = frozenset()
        ground.victims = None  # there are more of them now


def _clear(ground: SlotSpace | SlotContest, gpu_type: str) -> Iterable[tuple[int, int, int, int]]:
    """Whole open nodes of the type that nobody will hold but best-effort work: how much others are
    still leaving, how much that holds, and the last first, since others are placed from the first
    on. Those that are being left come last: they are left for somebody, who has no place if they
    are kept instead of the ones that were kept then."""
    cluster = ground.cluster
    capacity = cluster.capacity
    opened, total = capacity.open[gpu_type].masks, capacity.total[gpu_type].masks
    for ordinal, mask in enumerate(opened):
        if mask and mask == total[ordinal] and is_own(cluster.nodes[capacity.node_ids[ordinal]]):
            claims = capacity.claims.get(capacity.node_ids[ordinal], {})
            stay = {key: gpus for key, gpus in claims.items() if not _leaves(ground, key)}
            if all(cluster.jobs[key.job_id].lane >= Lane.SPOT for key in stay):
                held = sum(gpus.bit_count() for gpus in stay.values())
                left = sum(gpus.bit_count() for gpus in claims.values()) - held
                yield left, held, -ordinal, ordinal


def _leaves(ground: SlotSpace | SlotContest, key: AttemptKey) -> bool:
    leaving = ground.cluster.attempts[key].state is AttemptState.PAUSING
    return leaving or key in ground.outcome.outranked
