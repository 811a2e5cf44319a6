"""The rent rule: own nodes first; a machine only where lateness would cost more than the machine.

1. A job stays on the cluster's own nodes if it is expected to be in time there. So does a job whose
   lateness costs less than any machine.
2. A job that costs less on a present machine, up or booting, goes to the cheapest one. The job with
   the largest loss chooses first. Time that is paid for already costs nothing.
3. For the other jobs a method of `policy.priced` chooses new machines and the GPUs of each job. Due
   dates are nearer by the boot time there. A machine is rented if the lateness of its jobs on own
   nodes costs more than the machine and their lateness there. The machine is billed from its
   request to the end of its last job, and for its minimum at least. The largest savings come first,
   as far as the budget goes.
4. A machine without present or coming jobs is given back shortly before its paid time is over.
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
    MachineGrant,
    MachineOffer,
    Market,
    PresentMachine,
    bids_of,
    lateness_costs,
    worth_a_machine,
)
from dlq_master.policy.rent.placing import use_present_machines

# A job that is to run on a new machine: its GPUs, its end, and its cost of being late here and
# there.
_Guest = tuple[int, int, float, float, float]
_UNUSED = Reason(ReasonCode.RENTED, detail="nobody needs it")
AHEAD_S = 5.0  # how long before its paid time is over a machine is given back


def decide(
    market: Market, solver: Solver, draw: np.random.Generator
) -> tuple[list[MachineGrant], list[Provision | Release]]:
    """The jobs that go to present machines, and the machines to rent and to give back.

    The solver is called once, and only if jobs are left for new machines.
    """
    grants, left = use_present_machines(market, bids_of(market))
    if left.jobs:
        left = _as_many_as_fit(market, worth_a_machine(market, left))
    new: list[Provision] = []
    if left.jobs:
        new = _affordable(market, left, _schedule(market, left, solver, draw))
    used = {one.request_id for one in grants}
    over = [Release(at.request_id, _UNUSED) for at in market.present if _is_over(market, at, used)]
    return grants, [*new, *over]


def _as_many_as_fit(market: Market, left: Bids) -> Bids:
    """The bids with the largest losses, as far as all machines that may be rented could hold them.

    With more jobs the methods would split machines into shares that a job with a fixed number of
    GPUs cannot use.
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
    """The new machines that the method chooses; an empty schedule where none can be rented."""
    try:
        catalogue = Catalogue(tuple(_offered_type(offer) for offer in market.offers), market.now_s)
    except ValueError:
        return EMPTY
    jobs = _priced_jobs(catalogue, market, left)
    if not jobs:
        return EMPTY
    most = sum(offer.left for offer in market.offers)
    return solver(Situation(market.now_s, tuple(jobs), catalogue, most), draw)


def _offered_type(offer: MachineOffer) -> NodeType:
    """The hardware of a pool; with an end in the past if no more of it may be rented."""
    return offer.type if offer.left else offer.type._replace(until_s=-inf)


def _priced_jobs(catalogue: Catalogue, market: Market, left: Bids) -> list[PricedJob]:
    """The jobs as `policy.priced` sees them: run times by kind of GPU.

    Where several offers have the same kind, the fastest one counts. Jobs that fit on no machine are
    left out, since the methods need a place for every job.
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


def _affordable(market: Market, left: Bids, made: Schedule) -> list[Provision]:
    """New machines that save money, the largest saving first, within the offers and the budget."""
    room = {offer.type.name: offer.left for offer in market.offers}
    prices = {offer.type.name: offer.type.price_per_hour for offer in market.offers}
    per_hour, spare, chosen = market.spare_per_hour, market.spare, []
    for new in sorted(_new_machines(market, left, made), key=lambda new: (-new.saves, new.jobs)):
        price = prices[new.pool]
        if new.saves > 0.0 and room[new.pool] and price <= per_hour and new.costs <= spare:
            room[new.pool] -= 1
            per_hour, spare = per_hour - price, spare - new.costs
            chosen.append(new)
    return chosen


def _new_machines(market: Market, left: Bids, made: Schedule) -> list[Provision]:
    """The machines of a schedule, each with its jobs, its cost and its saving."""
    found = [(n, made.grants[one.job]) for n, one in enumerate(left.jobs) if one.job in made.grants]
    late_jobs = left.only(np.array([n for n, _ in found], dtype=np.int64))
    grants = [grant for _, grant in found]
    offers = [made.types[grant.node] for grant in grants]
    gpus = [grant.gpus for grant in grants]
    begin_s = market.now_s + np.array([market.offers[n].type.boot_s for n in offers])
    at = np.arange(len(grants)), offers, np.array(gpus, dtype=np.int64) - 1
    ends_s = begin_s + late_jobs.left_s[at]
    late = lateness_costs(late_jobs.weight, late_jobs.due_s, ends_s)
    there: dict[int, list[_Guest]] = {}
    jobs = [one.job for one in late_jobs.jobs]
    guests = zip(jobs, gpus, ends_s.tolist(), late_jobs.own.tolist(), late.tolist(), strict=True)
    for grant, guest in zip(grants, guests, strict=True):
        there.setdefault(grant.node, []).append(guest)
    return [
        _new_machine(market.now_s, market.offers[made.types[node]].type, those)
        for node, those in there.items()
    ]


def _new_machine(now_s: float, offer: NodeType, guests: list[_Guest]) -> Provision:
    """A machine for these jobs. Its saving is -inf if a job would outlast the provider's end."""
    jobs, gpus, ends_s, own, late = zip(*guests, strict=True)
    span_s = max(max(ends_s) - now_s, offer.minimum_billing_s)
    costs = span_s * offer.price_per_hour / HOUR_S
    saves = sum(own) - sum(late) - costs if max(ends_s) <= offer.until_s else -inf
    why = Reason(ReasonCode.RENTED, detail=offer.name)
    return Provision(offer.name, jobs, gpus, costs, saves, why)


def _is_over(market: Market, at: PresentMachine, used: set[str]) -> bool:
    """Whether a machine has no jobs, gets none, and would soon cost more."""
    idle = not at.jobs and at.request_id not in used
    return idle and market.now_s >= at.paid_until_s - AHEAD_S
