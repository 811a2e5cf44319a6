"""The jobs that bid for machines, in columns: all of one decision is worked out at once for all
jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from typing import NamedTuple

import numpy as np

from dlq_master.policy.priced.catalogue import Floats, Ints
from dlq_master.policy.rent.market import MachineOffer, Market, Wanting

HOUR_S = 3600.0


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
