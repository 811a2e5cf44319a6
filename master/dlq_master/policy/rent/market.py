"""The input of a decision when machines may be rented, and its bidding jobs in columns.

Times in seconds, money in the currency of prices; instants on the master's axis. One decision is
worked out at once for all jobs.
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
from dlq_master.policy.rent.line import free_on

HOUR_S = 3600.0


class MachineOffer(NamedTuple):
    """A pool: the hardware of one of its machines, and how many more of them may be rented now."""

    type: NodeType
    left: int


class Here(NamedTuple):
    """A machine that is rented. `ready_s`: when it takes work, or took it first; `free`: GPUs that
    nobody holds and nobody is to have; `jobs`: its jobs, present and planned.
    """

    request_id: str
    offer: int
    ready_s: float
    paid_until_s: float
    free: int
    jobs: tuple[int, ...] = ()


class Wanting(NamedTuple):
    """A job that waits, and costs `weight` for each second after `due_s`. `left_s[offer, g - 1]`:
    the remaining time on g GPUs of an offer; inf: it may not run so. `own_end_s`: when it is
    expected to be done on the cluster's own nodes; inf: never.
    """

    job: int
    due_s: float
    weight: float
    left_s: Floats
    own_end_s: float = inf


class Market(NamedTuple):
    """One decision. `spare_per_hour`: the most that more machines may cost in an hour; `spare`: the
    most that they may cost in all; inf: any.
    """

    now_s: float
    offers: tuple[MachineOffer, ...]
    here: tuple[Here, ...]
    wanting: tuple[Wanting, ...]
    spare_per_hour: float = inf
    spare: float = inf


class Put(NamedTuple):
    """A job is to run on so many GPUs of a machine: now if it is up, as soon as it is otherwise."""

    job: int
    request_id: str
    gpus: int


class Bids(NamedTuple):
    """Jobs for which being late on the own nodes would cost something, the one with the largest
    loss first: `own` is what it would cost. `left_s[job, offer, g - 1]`.
    """

    jobs: tuple[Wanting, ...]
    left_s: Floats
    due_s: Floats
    weight: Floats
    own: Floats

    def only(self, at: Ints) -> Bids:
        """Those of these places."""
        jobs = tuple([self.jobs[n] for n in at.tolist()])
        return Bids(jobs, self.left_s[at], self.due_s[at], self.weight[at], self.own[at])


def here(
    cluster: Cluster, machine: Machine, offer: int, of: NodeType, coming: Sequence[Migrate] = ()
) -> Here:
    """A machine that boots or is up, as it is just now. `coming`: jobs that have been stopped to go
    on there.
    """
    node = cluster.nodes.get(machine.node_id)
    up = machine.state is MachineState.UP
    free = of.gpus if node is None or not up else free_on(cluster, node).bit_count()
    if node is not None and node.flags & CLOSED:
        free = 0  # people or rules keep new work off it
    ready_s = machine.asked_s + of.boot_s if machine.up_s is None else machine.up_s
    jobs = tuple(int(key.job_id) for key in cluster.attempts_on(machine.node_id))
    free -= sum([one.gpus for one in coming])
    jobs += tuple([int(one.key.job_id) for one in coming])
    return Here(machine.request_id, offer, ready_s, machine.paid_until_s, free, jobs)


def bids(market: Market) -> Bids:
    """Of everybody who is expected to be late on the own nodes."""
    every = market.wanting
    if not every:
        return Bids((), np.zeros((0, len(market.offers), 0)), *np.zeros((3, 0)))
    jobs, dues_s, weights, tables, ends_s = zip(*every, strict=True)
    due_s, weight = np.array(dues_s), np.array(weights)
    with np.errstate(invalid="ignore"):  # who loses nothing by never being done
        own = late_costs(weight, due_s, np.array(ends_s))
    late = np.flatnonzero(own > 0.0)
    at = late[np.lexsort((np.array(jobs)[late], -own[late]))]
    order = at.tolist()
    left_s = np.array([tables[n] for n in order] or np.zeros((0, len(market.offers), 0)))
    return Bids(tuple([every[n] for n in order]), left_s, due_s[at], weight[at], own[at])


def pay_at_all(market: Market, who: Bids) -> Bids:
    """Whom being late on the own nodes costs more than its part of a new machine."""
    return who.only(np.flatnonzero((who.own[:, None] > _least_costs(market, who)).any(axis=1)))


def _least_costs(market: Market, who: Bids) -> Floats:
    """[job, offer]: on as many GPUs of a new machine as cost least with the lateness there."""
    boot_s, price = (
        np.array(column)[:, None]
        for column in zip(*[(o.type.boot_s, o.type.price_per_hour) for o in market.offers], strict=True)  # noqa: E501
    )  # fmt: skip
    late = late_costs(
        who.weight[:, None, None], who.due_s[:, None, None], market.now_s + boot_s + who.left_s
    )
    with np.errstate(invalid="ignore"):  # what costs nothing, and is never done
        money = (boot_s + who.left_s) * parts(market.offers, who.left_s.shape[2]) * price / HOUR_S
    cost = np.where(np.isfinite(who.left_s), late + money, inf)
    return reduce(np.minimum, np.moveaxis(cost, 2, 0))  # at a tenth of what `min` takes for so few


def late_costs(weight: Floats, due_s: Floats, end_s: Floats) -> Floats:
    """The cost of being done then; inf: never."""
    found: Floats = weight * np.maximum(0.0, end_s - due_s)
    return found


def parts(offers: Sequence[MachineOffer], width: int) -> Floats:
    """[offer, g - 1]: the part of a machine that so many GPUs are."""
    gpus = np.array([offer.type.gpus for offer in offers])
    found: Floats = np.arange(1, width + 1) / gpus[:, None]
    return found
