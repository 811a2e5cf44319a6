"""Jobs that go to a present machine: to the cheapest one that costs less than waiting.

Machines of one offer with the same begin and the same paid end cost a job the same; only their free
GPUs differ. So costs are computed once for each such class of machines.
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
    MachineGrant,
    Market,
    lateness_costs,
    machine_shares,
)


class _PriceClass(NamedTuple):
    """Machines that cost a job the same. `begin_s`: when work begins there; `paid_s`: until when
    they are paid for, never before `begin_s`.
    """

    offer: int
    begin_s: float
    paid_s: float


_Room = dict[_PriceClass, dict[int, list[str]]]  # heaps of machines by how many GPUs are free


def use_present_machines(market: Market, bids: Bids) -> tuple[list[MachineGrant], Bids]:
    """Grant present machines to bids that cost less there; return the grants and the other bids."""
    room = _room(market)
    if not room or not bids.jobs:
        return [], bids
    costs = _costs(market, bids, room)
    least = np.min([cost.min(axis=1, initial=inf) for cost in costs.values()], axis=0)
    put, gone = [], []
    for n in np.flatnonzero(least < bids.own).tolist():
        found = _cheapest(room, costs, n)
        if found is not None and found[0] < bids.own[n]:
            _, request_id, gpus, alike, free = found
            _take(room, alike, free, gpus)
            put.append(MachineGrant(bids.jobs[n].job, request_id, gpus))
            gone.append(n)
    return put, bids.only(np.delete(np.arange(len(bids.jobs)), gone)) if gone else bids


def _room(market: Market) -> _Room:
    """The machines with free GPUs, by class and number of free GPUs, each a heap of request ids."""
    room: dict[_PriceClass, dict[int, list[str]]] = {}
    for at in market.present:
        if at.free > 0:
            begin_s = max(market.now_s, at.ready_s)
            alike = _PriceClass(at.offer, begin_s, max(at.paid_until_s, begin_s))
            room.setdefault(alike, {}).setdefault(at.free, []).append(at.request_id)
    for heaps in room.values():
        for heap in heaps.values():
            heapify(heap)
    return room


def _costs(market: Market, bids: Bids, room: _Room) -> dict[_PriceClass, Floats]:
    """[job, g - 1] by class: the lateness of a job on g GPUs there, and its share of unpaid time.

    g is at most the free GPUs of a machine of the class. inf: the job may not run so, or would
    outlast the provider's end.
    """
    found: dict[_PriceClass, Floats] = {}
    share = machine_shares(market.offers, bids.left_s.shape[2])
    for n, offer in enumerate(market.offers):
        mine = [alike for alike in room if alike.offer == n]
        begin_s = np.array([alike.begin_s for alike in mine])[:, None]
        paid_s = np.array([alike.paid_s for alike in mine])[:, None]
        end_s = begin_s + bids.left_s[:, None, n]  # [job, alike, g - 1]
        late = lateness_costs(bids.weight[:, None, None], bids.due_s[:, None, None], end_s)
        unpaid_s = np.maximum(0.0, end_s - paid_s)
        with np.errstate(invalid="ignore"):  # what costs nothing, and is never done
            cost = late + unpaid_s * share[n] * offer.type.price_per_hour / HOUR_S
        cost = np.where(np.isfinite(end_s) & (end_s <= offer.type.until_s), cost, inf)
        found |= {alike: cost[:, at, : max(room[alike])] for at, alike in enumerate(mine)}
    return found


def _cheapest(
    room: _Room, costs: Mapping[_PriceClass, Floats], job: int
) -> tuple[float, str, int, _PriceClass, int] | None:
    """The cheapest place of one job: (cost, request id, GPUs, class, free GPUs).

    Of equal costs the machine with the lowest request id. None: there is no room.
    """
    found = []
    for alike, heaps in room.items():
        row = costs[alike][job].tolist()
        for free, heap in heaps.items():
            cost = min(row[:free])
            found.append((cost, heap[0], row.index(cost) + 1, alike, free))
    return min(found, key=lambda place: place[:2], default=None)


def _take(room: _Room, alike: _PriceClass, free: int, gpus: int) -> None:
    """Take `gpus` GPUs of the lowest request id among machines of a class with `free` free GPUs."""
    heaps = room[alike]
    request_id = heappop(heaps[free])
    if not heaps[free]:
        del heaps[free]
    if free > gpus:
        heappush(heaps.setdefault(free - gpus, []), request_id)
    if not heaps:
        del room[alike]
