"""Renting job by job, as one would write it down first: what `policy.rent` decides in columns must
be the same.
"""

from __future__ import annotations

from math import inf

import numpy as np

from dlq_master.model.plan import Provision, Release
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.priced.catalogue import Catalogue, Floats
from dlq_master.policy.priced.situation import EMPTY, PricedJob, Schedule, Situation, Solver
from dlq_master.policy.rent.market import Bidder, MachineGrant, MachineOffer, Market, PresentMachine

_HOUR_S = 3600.0


def late_cost(one: Bidder, end_s: float) -> float:
    """What being done then costs; inf: never."""
    return one.weight * max(0.0, end_s - one.due_s)


def decide(
    market: Market, solver: Solver, draw: np.random.Generator
) -> tuple[list[MachineGrant], list[Provision | Release]]:
    """As `policy.rent.decide.decide`."""
    late = [one for one in market.bidders if late_cost(one, one.own_end_s) > 0.0]
    put, left = _placed(market, late)
    left = [
        one
        for one in left
        if late_cost(one, one.own_end_s)
        > min(_least(market, one, n, offer) for n, offer in enumerate(market.offers))
    ]
    left = _as_many_as_fit(market, left)
    rented = _rented(market, left, _schedule(market, left, solver, draw)) if left else []
    come = {one.request_id for one in put}
    over = [
        Release(at.request_id, Reason(ReasonCode.RENTED, detail="nobody needs it"))
        for at in market.present
        if not at.jobs and at.request_id not in come
        if market.now_s >= at.paid_until_s - 5.0
    ]
    return put, [*rented, *over]


def _least(market: Market, one: Bidder, n: int, offer: MachineOffer) -> float:
    costs = [inf]
    for gpus, left_s in enumerate(one.left_s[n].tolist(), 1):
        if left_s < inf:
            late = late_cost(one, market.now_s + offer.type.boot_s + left_s)
            part = gpus / offer.type.gpus
            money = (offer.type.boot_s + left_s) * part * offer.type.price_per_hour / _HOUR_S
            costs.append(late + money)
    return min(costs)


def _placed(market: Market, late: list[Bidder]) -> tuple[list[MachineGrant], list[Bidder]]:
    free = {at.request_id: at.free for at in market.present}
    put, left = [], []
    for one in sorted(late, key=lambda one: (-late_cost(one, one.own_end_s), one.job)):
        places = [
            (cost, at.request_id, gpus)
            for at in market.present
            for cost, gpus in [_cheapest(market, one, at, free[at.request_id])]
            if cost < late_cost(one, one.own_end_s)
        ]
        if not places:
            left.append(one)
            continue
        _, request_id, gpus = min(places)
        free[request_id] -= gpus
        put.append(MachineGrant(one.job, request_id, gpus))
    return put, left


def _cheapest(market: Market, one: Bidder, at: PresentMachine, free: int) -> tuple[float, int]:
    offer = market.offers[at.offer].type
    begin_s = max(market.now_s, at.ready_s)
    costs = [(inf, 0)]
    for gpus, left_s in enumerate(one.left_s[at.offer].tolist()[:free], 1):
        end_s = begin_s + left_s
        if left_s < inf and end_s <= offer.until_s:
            unpaid_s = max(0.0, end_s - max(at.paid_until_s, begin_s))
            money = unpaid_s * (gpus / offer.gpus) * offer.price_per_hour / _HOUR_S
            costs.append((late_cost(one, end_s) + money, gpus))
    return min(costs)


def _as_many_as_fit(market: Market, left: list[Bidder]) -> list[Bidder]:
    room, found = sum(offer.left * offer.type.gpus for offer in market.offers), []
    for one in left:
        least = int(np.isfinite(one.left_s).any(axis=0).argmax()) + 1
        if least <= room:
            room -= least
            found.append(one)
    return found


def _schedule(
    market: Market, left: list[Bidder], solver: Solver, draw: np.random.Generator
) -> Schedule:
    types = [
        offer.type if offer.left else offer.type._replace(until_s=-inf) for offer in market.offers
    ]
    if all(one.until_s <= market.now_s for one in types):
        return EMPTY
    catalogue = Catalogue(tuple(types), market.now_s)
    jobs = [_priced(catalogue, market, one) for one in left]
    jobs = sorted(job for job in jobs if _fits(catalogue, job.whole_s))
    if not jobs:
        return EMPTY
    most = sum(offer.left for offer in market.offers)
    return solver(Situation(market.now_s, tuple(jobs), catalogue, most), draw)


def _fits(catalogue: Catalogue, whole_s: Floats) -> bool:
    cut = catalogue.smallest.shape[1] - 1
    return bool((np.isfinite(whole_s[:, :cut]) & (catalogue.smallest[:, 1:] >= 0)).any())


def _priced(catalogue: Catalogue, market: Market, one: Bidder) -> PricedJob:
    whole = np.full((len(catalogue.kinds), catalogue.smallest.shape[1] - 1), inf)
    for n in catalogue.offered:
        k = catalogue.kinds.index(market.offers[n].type.kind)
        whole[k, :] = np.minimum(whole[k, :], one.left_s[n])
    boot_s = min(market.offers[n].type.boot_s for n in catalogue.offered)
    return PricedJob(one.job, one.due_s - boot_s, one.weight, whole)


def _rented(market: Market, left: list[Bidder], made: Schedule) -> list[Provision]:
    there: dict[int, list[Bidder]] = {}
    for one in left:
        if one.job in made.grants:
            there.setdefault(made.grants[one.job].node, []).append(one)
    found = [_weighed(market, made, node, jobs) for node, jobs in there.items()]
    room = {offer.type.name: offer.left for offer in market.offers}
    prices = {offer.type.name: offer.type.price_per_hour for offer in market.offers}
    per_hour, spare, chosen = market.spare_per_hour, market.spare, []
    for new in sorted(found, key=lambda new: (-new.saves, new.jobs)):
        price = prices[new.pool]
        if new.saves > 0.0 and room[new.pool] and price <= per_hour and new.costs <= spare:
            room[new.pool] -= 1
            per_hour, spare = per_hour - price, spare - new.costs
            chosen.append(new)
    return chosen


def _weighed(market: Market, made: Schedule, node: int, jobs: list[Bidder]) -> Provision:
    n = made.types[node]
    offer = market.offers[n].type
    gpus = tuple(made.grants[one.job].gpus for one in jobs)
    ends = [
        market.now_s + offer.boot_s + float(one.left_s[n, g - 1])
        for one, g in zip(jobs, gpus, strict=True)
    ]
    span_s = max(max(ends) - market.now_s, offer.minimum_billing_s)
    costs = span_s * offer.price_per_hour / _HOUR_S
    own = sum(late_cost(one, one.own_end_s) for one in jobs)
    late = sum(late_cost(one, end_s) for one, end_s in zip(jobs, ends, strict=True))
    saves = own - late - costs if max(ends) <= offer.until_s else -inf
    why = Reason(ReasonCode.RENTED, detail=offer.name)
    return Provision(offer.name, tuple(one.job for one in jobs), gpus, costs, saves, why)
