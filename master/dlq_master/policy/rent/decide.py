"""Own nodes first; a machine is rented only when being late would cost more than it does.

1. A job is left to the cluster's own nodes if it is expected to be in time there. So is a job that
   is so little late that no machine could pay for that.
2. A job that would be better off on a present or coming machine goes to the cheapest place of
   these. The job with the largest loss chooses first. Capacity that is paid for already costs
   nothing.
3. For the others a method of `policy.priced` chooses machines, and GPUs of them; due dates are
   nearer by the boot time.
   A machine of it is rented if the lateness of its jobs on the own nodes costs more than their
   lateness there plus the machine. The machine counts from its request to the last job's end
   (its minimum at least). The order is that of the savings, as far as the budget goes.
4. A machine on which nobody is, and to which nobody is to come, is given back when what is paid of
   it is over.
"""

from __future__ import annotations

from functools import reduce
from math import inf

from dlq_master.model.late import np
from dlq_master.model.plan import Provision, Release
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.situation import EMPTY, PricedJob, Schedule, Situation, Solver
from dlq_master.policy.rent.market import (
    HOUR_S,
    Bids,
    Here,
    MachineOffer,
    Market,
    Put,
    bids,
    late_costs,
    pay_at_all,
)
from dlq_master.policy.rent.placing import placed

# A job that is to run on a new machine: its GPUs, its end, and its cost of being late here and
# there.
_Guest = tuple[int, int, float, float, float]
_UNUSED = Reason(ReasonCode.RENTED, detail="nobody needs it")
AHEAD_S = 5.0  # a machine is given back so long before it would cost more


def decide(
    market: Market, solver: Solver, draw: np.random.Generator
) -> tuple[list[Put], list[Provision | Release]]:
    """The jobs that go to present machines, and the changes of machines. Costs one call of the
    solver, if a job is left for it.
    """
    put, left = placed(market, bids(market))
    if left.jobs:
        left = _as_many_as_fit(market, pay_at_all(market, left))
    rented = _rented(market, left, _schedule(market, left, solver, draw)) if left.jobs else []
    come = {one.request_id for one in put}
    over = [Release(at.request_id, _UNUSED) for at in market.here if _over(market, at, come)]
    return put, [*rented, *over]


def _as_many_as_fit(market: Market, left: Bids) -> Bids:
    """The jobs with the largest losses, as far as all possible machines could hold them. With more
    jobs the methods would divide machines into parts that a job with a fixed number of GPUs cannot
    use.
    """
    room, found = sum(offer.left * offer.type.gpus for offer in market.offers), []
    somewhere = reduce(np.logical_or, np.moveaxis(np.isfinite(left.left_s), 1, 0))
    least = somewhere.argmax(axis=1) + 1
    for n, gpus in enumerate(least.tolist()):
        if gpus <= room:
            room -= gpus
            found.append(n)
    return left.only(np.array(found, dtype=np.int64))


def _schedule(market: Market, left: Bids, solver: Solver, draw: np.random.Generator) -> Schedule:
    """The new machines of the method; nothing where none can be had."""
    try:
        catalogue = Catalogue(tuple(_shown(offer) for offer in market.offers), market.now_s)
    except ValueError:
        return EMPTY
    jobs = _priced(catalogue, market, left)
    if not jobs:
        return EMPTY
    most = sum(offer.left for offer in market.offers)
    return solver(Situation(market.now_s, tuple(jobs), catalogue, most), draw)


def _shown(offer: MachineOffer) -> NodeType:
    return offer.type if offer.left else offer.type._replace(until_s=-inf)


def _priced(catalogue: Catalogue, market: Market, left: Bids) -> list[PricedJob]:
    """By kinds of GPUs; where several offers are of a kind, as fast as the fastest. The methods
    want every job to fit somewhere, so a job that fits on no machine now waits.
    """
    cut = catalogue.smallest.shape[1] - 1
    whole = np.full((len(left.jobs), len(catalogue.kinds), cut), inf)
    boot_s = inf
    for n in catalogue.offered:
        offer = market.offers[n].type
        mine = whole[:, catalogue.kinds.index(offer.kind), : left.left_s.shape[2]]
        np.minimum(mine, left.left_s[:, n], out=mine)
        boot_s = min(boot_s, offer.boot_s)
    fits = (np.isfinite(whole) & (catalogue.smallest[:, 1:] >= 0)).any(axis=(1, 2))
    found = [(left.jobs[n], whole[n]) for n in np.flatnonzero(fits).tolist()]
    return sorted(PricedJob(one.job, one.due_s - boot_s, one.weight, mine) for one, mine in found)


def _rented(market: Market, left: Bids, made: Schedule) -> list[Provision]:
    """New machines that pay, the greatest saving first, as far as there are any and the budget
    goes.
    """
    room = {offer.type.name: offer.left for offer in market.offers}
    prices = {offer.type.name: offer.type.price_per_hour for offer in market.offers}
    per_hour, spare, chosen = market.spare_per_hour, market.spare, []
    for new in sorted(_weighed(market, left, made), key=lambda new: (-new.saves, new.jobs)):
        price = prices[new.pool]
        if new.saves > 0.0 and room[new.pool] and price <= per_hour and new.costs <= spare:
            room[new.pool] -= 1
            per_hour, spare = per_hour - price, spare - new.costs
            chosen.append(new)
    return chosen


def _weighed(market: Market, left: Bids, made: Schedule) -> list[Provision]:
    """Each machine that was made, with what it costs and saves."""
    found = [(n, made.grants[one.job]) for n, one in enumerate(left.jobs) if one.job in made.grants]
    who = left.only(np.array([n for n, _ in found], dtype=np.int64))
    grants = [grant for _, grant in found]
    offers = [made.types[grant.node] for grant in grants]
    gpus = [grant.gpus for grant in grants]
    begin_s = market.now_s + np.array([market.offers[n].type.boot_s for n in offers])
    at = np.arange(len(grants)), offers, np.array(gpus, dtype=np.int64) - 1
    ends_s = begin_s + who.left_s[at]
    late = late_costs(who.weight, who.due_s, ends_s)
    there: dict[int, list[_Guest]] = {}
    jobs = [one.job for one in who.jobs]
    guests = zip(jobs, gpus, ends_s.tolist(), who.own.tolist(), late.tolist(), strict=True)
    for grant, guest in zip(grants, guests, strict=True):
        there.setdefault(grant.node, []).append(guest)
    return [
        _new(market.now_s, market.offers[made.types[node]].type, those)
        for node, those in there.items()
    ]


def _new(now_s: float, offer: NodeType, guests: list[_Guest]) -> Provision:
    jobs, gpus, ends_s, own, late = zip(*guests, strict=True)
    span_s = max(max(ends_s) - now_s, offer.minimum_billing_s)
    costs = span_s * offer.price_per_hour / HOUR_S
    saves = sum(own) - sum(late) - costs if max(ends_s) <= offer.until_s else -inf
    why = Reason(ReasonCode.RENTED, detail=offer.name)
    return Provision(offer.name, jobs, gpus, costs, saves, why)


def _over(market: Market, at: Here, come: set[str]) -> bool:
    idle = not at.jobs and at.request_id not in come
    return idle and market.now_s >= at.paid_until_s - AHEAD_S
