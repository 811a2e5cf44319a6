"""The input of a rent decision, and its bidding jobs as columns.

Durations in seconds, instants in seconds on the master's axis, money in the currency of the prices.
A decision is computed for all jobs at once, with numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.late import np
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import CLOSED
from dlq_master.model.plan import Migrate
from dlq_master.policy.priced.catalogue import Floats, Ints, NodeType
from dlq_master.policy.rent.line import free_mask

HOUR_S = 3600.0


class MachineOffer(NamedTuple):
    """A pool: the hardware of its machines, and how many more of them may be rented now."""

    type: NodeType
    left: int


class PresentMachine(NamedTuple):
    """A rented machine, booting or up.

    `offer`: its place in `Market.offers`. `ready_s`: the instant at which it takes work, or first
    did. `free`: GPUs that are neither held nor granted. `jobs`: jobs that run there, and jobs on
    their way.
    """

    request_id: str
    offer: int
    ready_s: float
    paid_until_s: float
    free: int
    jobs: tuple[int, ...] = ()


class Bidder(NamedTuple):
    """A job for which a machine may be rented. It costs `weight` for each second after `due_s`.

    `left_s[offer, g - 1]`: its remaining time on g GPUs of an offer; inf: it may not run so.
    `own_end_s`: when it is expected to end on the cluster's own nodes; inf: never.
    """

    job: int
    due_s: float
    weight: float
    left_s: Floats
    own_end_s: float = inf


class Market(NamedTuple):
    """The input of one decision.

    `spare_per_hour`: the most that new machines may cost per hour; `spare`: the most that they may
    cost in all; inf: no limit.
    """

    now_s: float
    offers: tuple[MachineOffer, ...]
    present: tuple[PresentMachine, ...]
    bidders: tuple[Bidder, ...]
    spare_per_hour: float = inf
    spare: float = inf


class MachineGrant(NamedTuple):
    """GPUs of a present machine for a job. It starts there now, or once the machine is up."""

    job: int
    request_id: str
    gpus: int


class Bids(NamedTuple):
    """The bidders whose lateness on own nodes costs something, the largest cost first, as columns.

    `own[job]` is that cost. `left_s[job, offer, g - 1]` is as in `Bidder`.
    """

    jobs: tuple[Bidder, ...]
    left_s: Floats
    due_s: Floats
    weight: Floats
    own: Floats

    def only(self, at: Ints) -> Bids:
        """The bids at these places."""
        jobs = tuple([self.jobs[n] for n in at.tolist()])
        return Bids(jobs, self.left_s[at], self.due_s[at], self.weight[at], self.own[at])


def present_machine(
    cluster: Cluster,
    machine: Machine,
    offer: int,
    hardware: NodeType,
    coming: Sequence[Migrate] = (),
) -> PresentMachine:
    """A rented machine as it is now. `coming`: jobs that are leaving their GPUs for it."""
    node = cluster.nodes.get(machine.node_id)
    up = machine.state is MachineState.UP
    free = hardware.gpus if node is None or not up else free_mask(cluster, node).bit_count()
    if node is not None and node.flags & CLOSED:
        free = 0  # people or rules keep new work off it
    ready_s = machine.asked_s + hardware.boot_s if machine.up_s is None else machine.up_s
    jobs = tuple(int(key.job_id) for key in cluster.attempts_on(machine.node_id))
    free -= sum([one.gpus for one in coming])
    jobs += tuple([int(one.key.job_id) for one in coming])
    return PresentMachine(machine.request_id, offer, ready_s, machine.paid_until_s, free, jobs)


def bids_of(market: Market) -> Bids:
    """The bids of all bidders that are expected to be late on own nodes."""
    every = market.bidders
    if not every:
        return Bids((), np.zeros((0, len(market.offers), 0)), *np.zeros((3, 0)))
    jobs, dues_s, weights, tables, ends_s = zip(*every, strict=True)
    due_s, weight = np.array(dues_s), np.array(weights)
    with np.errstate(invalid="ignore"):  # a weight of 0 times inf
        own = lateness_costs(weight, due_s, np.array(ends_s))
    late = np.flatnonzero(own > 0.0)
    at = late[np.lexsort((np.array(jobs)[late], -own[late]))]
    order = at.tolist()
    left_s = np.array([tables[n] for n in order] or np.zeros((0, len(market.offers), 0)))
    return Bids(tuple([every[n] for n in order]), left_s, due_s[at], weight[at], own[at])


def worth_a_machine(market: Market, bids: Bids) -> Bids:
    """The bids whose lateness on own nodes costs more than their share of a new machine would."""
    return bids.only(np.flatnonzero((bids.own[:, None] > _least_costs(market, bids)).any(axis=1)))


def _least_costs(market: Market, bids: Bids) -> Floats:
    """[job, offer]: the least cost of a job on a new machine, over its numbers of GPUs.

    The cost is its lateness there, plus its share of the machine's price until its end.
    """
    boot_s = np.array([offer.type.boot_s for offer in market.offers])[:, None]
    price = np.array([offer.type.price_per_hour for offer in market.offers])[:, None]
    late = lateness_costs(
        bids.weight[:, None, None], bids.due_s[:, None, None], market.now_s + boot_s + bids.left_s
    )
    share = machine_shares(market.offers, bids.left_s.shape[2])
    with np.errstate(invalid="ignore"):  # a price of 0 times inf
        money = (boot_s + bids.left_s) * share * price / HOUR_S
    cost = np.where(np.isfinite(bids.left_s), late + money, inf)
    return reduce(
        np.minimum, np.moveaxis(cost, 2, 0)
    )  # ten times as fast as `cost.min(axis=2)` for so few columns


def lateness_costs(weight: Floats, due_s: Floats, end_s: Floats) -> Floats:
    """The cost of each job's lateness if it ends at `end_s`; inf for an end that never comes."""
    found: Floats = weight * np.maximum(0.0, end_s - due_s)
    return found


def machine_shares(offers: Sequence[MachineOffer], width: int) -> Floats:
    """[offer, g - 1]: the share of a machine of the offer that g GPUs are."""
    gpus = np.array([offer.type.gpus for offer in offers])
    found: Floats = np.arange(1, width + 1) / gpus[:, None]
    return found
