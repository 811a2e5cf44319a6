"""Own nodes first; a machine is rented only when being late would cost more than it does.

1. Whoever is expected to be in time on the cluster's own nodes, or so little late that no machine could pay for that,
   is left to them.
2. Who would be better off on a machine that is there, or is coming, goes to the cheapest place of these: who would lose
   most chooses first. What is paid there already costs nothing.
3. For the others a method of `policy.priced` chooses machines, and GPUs of them; due dates are nearer by the boot time.
   A machine of it is rented if, of all who are to run there, being late on the own nodes costs more than being late
   there and the machine, from when it is asked for to the last one's end (its minimum at least); in the order of
   what that saves, as far as the budget goes.
4. A machine on which nobody is, and to which nobody is to come, is given back when what is paid of it is over.
"""

from __future__ import annotations

from math import inf

import numpy as np

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.situation import EMPTY, PricedJob, Schedule, Situation, Solver
from dlq_master.policy.rent.market import (
    Change,
    Here,
    Market,
    Offer,
    Provision,
    Put,
    Release,
    Wanting,
)

_HOUR_S = 3600.0
_AHEAD_S = 5.0  # a machine is given back so long before it would cost more


def decide(market: Market, solver: Solver, draw: np.random.Generator) -> list[Change]:
    """What changes; nothing for what stays as it is. Costs one call of the solver, if anybody is left for it."""
    late = [one for one in market.wanting if late_cost(one, one.own_end_s) > 0.0]
    put, left = _placed(market, late)
    left = _as_many_as_fit(market, [one for one in left if pays_at_all(market, one)])
    rented = _rented(market, left, _schedule(market, left, solver, draw)) if left else []
    come = {one.request_id for one in put}
    over = [Release(at.request_id) for at in market.here if _over(market, at, come)]
    return [*put, *rented, *over]


def late_cost(one: Wanting, end_s: float) -> float:
    """What being done then costs; inf: never."""
    return one.weight * max(0.0, end_s - one.due_s)


def pays_at_all(market: Market, one: Wanting) -> bool:
    """Whether being late on the own nodes costs it more than its part of a new machine."""
    own = late_cost(one, one.own_end_s)
    return any(own > _least_cost(market, one, n, offer) for n, offer in enumerate(market.offers))


def _least_cost(market: Market, one: Wanting, n: int, offer: Offer) -> float:
    left_s = one.left_s[n]
    part = np.arange(1, len(left_s) + 1) / offer.type.gpus
    end_s = market.now_s + offer.type.boot_s + left_s
    late = one.weight * np.maximum(0.0, end_s - one.due_s)
    money = (offer.type.boot_s + left_s) * part * offer.type.price_per_hour / _HOUR_S
    return float(np.where(np.isfinite(left_s), late + money, inf).min())


def _placed(market: Market, able: list[Wanting]) -> tuple[list[Put], list[Wanting]]:
    """Who goes to a machine that is there, and who is left."""
    free = {at.request_id: at.free for at in market.here if at.open}
    put, left = [], []
    for one in sorted(able, key=lambda one: (-late_cost(one, one.own_end_s), one.job)):
        own = late_cost(one, one.own_end_s)
        places = [
            (cost, at.request_id, gpus)
            for at in market.here
            if at.open
            for cost, gpus in [_cheapest(market, one, at, free[at.request_id])]
            if cost < own
        ]
        if not places:
            left.append(one)
            continue
        _, request_id, gpus = min(places)
        free[request_id] -= gpus
        put.append(Put(one.job, request_id, gpus))
    return put, left


def _cheapest(market: Market, one: Wanting, at: Here, free: int) -> tuple[float, int]:
    """The least cost of running there, on at most so many GPUs, and on how many; inf: it cannot."""
    offer = market.offers[at.offer].type
    left_s = one.left_s[at.offer][:free]
    if not len(left_s):
        return inf, 0
    begin_s = max(market.now_s, at.ready_s)
    end_s = begin_s + left_s
    unpaid_s = np.maximum(0.0, end_s - max(at.paid_until_s, begin_s))
    part = np.arange(1, len(left_s) + 1) / offer.gpus
    cost = one.weight * np.maximum(0.0, end_s - one.due_s)
    cost = cost + unpaid_s * part * offer.price_per_hour / _HOUR_S
    cost = np.where(end_s <= offer.until_s, cost, inf)
    best = int(cost.argmin())
    return float(cost[best]), best + 1


def _as_many_as_fit(market: Market, left: list[Wanting]) -> list[Wanting]:
    """Those who would lose most, as far as all machines that may be had could hold them: of more the methods make
    parts for everybody, with which who needs a fixed number of GPUs can do nothing."""
    room, found = sum(offer.left * offer.type.gpus for offer in market.offers), []
    for one in left:
        least = int(np.isfinite(one.left_s).any(axis=0).argmax()) + 1
        if least <= room:
            room -= least
            found.append(one)
    return found


def _schedule(
    market: Market, left: list[Wanting], solver: Solver, draw: np.random.Generator
) -> Schedule:
    """What the method makes of new machines; nothing where none can be had."""
    try:
        catalogue = Catalogue(tuple(_shown(offer) for offer in market.offers), market.now_s)
    except ValueError:
        return EMPTY
    jobs = [_priced(catalogue, market, one) for one in left]
    # The methods want everybody to fit somewhere: who fits on nothing that can be had now waits.
    jobs = sorted(job for job in jobs if _fits(catalogue, job))
    if not jobs:
        return EMPTY
    most = sum(offer.left for offer in market.offers)
    return solver(Situation(market.now_s, tuple(jobs), catalogue, most), draw)


def _shown(offer: Offer) -> NodeType:
    return offer.type if offer.left else offer.type._replace(until_s=-inf)


def _fits(catalogue: Catalogue, job: PricedJob) -> bool:
    cut = catalogue.smallest.shape[1] - 1
    return bool((np.isfinite(job.whole_s[:, :cut]) & (catalogue.smallest[:, 1:] >= 0)).any())


def _priced(catalogue: Catalogue, market: Market, one: Wanting) -> PricedJob:
    """By kinds of GPUs; where several offers are of a kind, as fast as the fastest."""
    whole = np.full((len(catalogue.kinds), catalogue.smallest.shape[1] - 1), inf)
    boot_s = inf
    for n in catalogue.offered:
        offer = market.offers[n].type
        k, width = catalogue.kinds.index(offer.kind), len(one.left_s[n])
        whole[k, :width] = np.minimum(whole[k, :width], one.left_s[n])
        boot_s = min(boot_s, offer.boot_s)
    return PricedJob(one.job, one.due_s - boot_s, one.weight, whole)


def _rented(market: Market, left: list[Wanting], made: Schedule) -> list[Provision]:
    """New machines that pay, the greatest saving first, as far as there are any and the budget goes."""
    there: dict[int, list[Wanting]] = {}
    for one in left:
        if one.job in made.grants:
            there.setdefault(made.grants[one.job].node, []).append(one)
    found = [_weighed(market, made, node, jobs) for node, jobs in there.items()]
    room = [offer.left for offer in market.offers]
    per_hour, spare, chosen = market.spare_per_hour, market.spare, []
    for new in sorted(found, key=lambda new: (-new.saves, new.jobs)):
        price = market.offers[new.offer].type.price_per_hour
        if new.saves > 0.0 and room[new.offer] and price <= per_hour and new.costs <= spare:
            room[new.offer] -= 1
            per_hour, spare = per_hour - price, spare - new.costs
            chosen.append(new)
    return chosen


def _weighed(market: Market, made: Schedule, node: int, jobs: list[Wanting]) -> Provision:
    n = made.types[node]
    offer = market.offers[n].type
    begin_s = market.now_s + offer.boot_s
    ends = [begin_s + float(one.left_s[n][made.grants[one.job].gpus - 1]) for one in jobs]
    span_s = max(max(ends) - market.now_s, offer.minimum_billing_s)
    costs = span_s * offer.price_per_hour / _HOUR_S
    own = sum(late_cost(one, one.own_end_s) for one in jobs)
    late = sum(late_cost(one, end_s) for one, end_s in zip(jobs, ends, strict=True))
    saves = own - late - costs if max(ends) <= offer.until_s else -inf
    gpus = tuple(made.grants[one.job].gpus for one in jobs)
    return Provision(n, tuple(one.job for one in jobs), gpus, costs, saves)


def _over(market: Market, at: Here, come: set[str]) -> bool:
    idle = at.open and not at.jobs and at.request_id not in come
    return idle and market.now_s >= at.paid_until_s - _AHEAD_S
