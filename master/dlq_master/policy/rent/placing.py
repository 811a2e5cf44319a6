"""Jobs that go to a present machine: the cheapest place that is better than waiting.

Machines of one offer that take work at the same instant and are paid until the same one cost a job
the same. They differ only by their free GPUs, so the price for a job is worked out once for all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats
from dlq_master.policy.rent.market import (
    HOUR_S,
    Bids,
    Market,
    Put,
    late_costs,
    parts,
)


class _Alike(NamedTuple):
    """Machines that cost the same: when work begins there, and until when it is paid already, from
    then on at least.
    """

    offer: int
    begin_s: float
    paid_s: float


_Room = dict[_Alike, dict[int, list[str]]]  # heaps of machines by how many GPUs are free


def placed(market: Market, who: Bids) -> tuple[list[Put], Bids]:
    """The jobs that go to a present machine, and the rest."""
    room = _room(market)
    if not room or not who.jobs:
        return [], who
    costs = _costs(market, who, room)
    least = np.min([cost.min(axis=1, initial=inf) for cost in costs.values()], axis=0)
    put, gone = [], []
    for n in np.flatnonzero(least < who.own).tolist():
        found = _cheapest(room, costs, n)
        if found is not None and found[0] < who.own[n]:
            _, request_id, gpus, alike, free = found
            _take(room, alike, free, gpus)
            put.append(Put(who.jobs[n].job, request_id, gpus))
            gone.append(n)
    return put, who.only(np.delete(np.arange(len(who.jobs)), gone)) if gone else who


def _room(market: Market) -> _Room:
    room: dict[_Alike, dict[int, list[str]]] = {}
    for at in market.here:
        if at.free > 0:
            begin_s = max(market.now_s, at.ready_s)
            alike = _Alike(at.offer, begin_s, max(at.paid_until_s, begin_s))
            room.setdefault(alike, {}).setdefault(at.free, []).append(at.request_id)
    for heaps in room.values():
        for heap in heaps.values():
            heapify(heap)
    return room


def _costs(market: Market, who: Bids, room: _Room) -> dict[_Alike, Floats]:
    """[job, g - 1], of at most the GPUs that are free: of being late there, and of what is not paid
    yet.
    """
    found: dict[_Alike, Floats] = {}
    share = parts(market.offers, who.left_s.shape[2])
    for n, offer in enumerate(market.offers):
        mine = [alike for alike in room if alike.offer == n]
        begin_s = np.array([alike.begin_s for alike in mine])[:, None]
        paid_s = np.array([alike.paid_s for alike in mine])[:, None]
        end_s = begin_s + who.left_s[:, None, n]  # [job, alike, g - 1]
        late = late_costs(who.weight[:, None, None], who.due_s[:, None, None], end_s)
        unpaid_s = np.maximum(0.0, end_s - paid_s)
        with np.errstate(invalid="ignore"):  # what costs nothing, and is never done
            cost = late + unpaid_s * share[n] * offer.type.price_per_hour / HOUR_S
        cost = np.where(np.isfinite(end_s) & (end_s <= offer.type.until_s), cost, inf)
        found |= {alike: cost[:, at, : max(room[alike])] for at, alike in enumerate(mine)}
    return found


def _cheapest(
    room: _Room, costs: Mapping[_Alike, Floats], job: int
) -> tuple[float, str, int, _Alike, int] | None:
    """Of one job: cost, machine and GPUs, and where the machine stands; of equals the machine that
    is named first.
    """
    found = []
    for alike, heaps in room.items():
        row = costs[alike][job].tolist()
        for free, heap in heaps.items():
            cost = min(row[:free])
            found.append((cost, heap[0], row.index(cost) + 1, alike, free))
    return min(found, key=lambda place: place[:2], default=None)


def _take(room: _Room, alike: _Alike, free: int, gpus: int) -> None:
    """GPUs of the machine that is named first of those with so many."""
    heaps = room[alike]
    request_id = heappop(heaps[free])
    if not heaps[free]:
        del heaps[free]
    if free > gpus:
        heappush(heaps.setdefault(free - gpus, []), request_id)
    if not heaps:
        del room[alike]
