"""The configurations of each job in the order of preference of the greedy method (section 3.3.1).

A configuration is a node type and a number of its GPUs; a *shape* is a kind of GPU and a number.
Configurations that meet the due date (D*_j) come first, the cheapest of them before others. Then
come the others, the fastest before others.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Bools, Catalogue, Floats, Ints, NodeType
from dlq_master.policy.priced.situation import Situation

_HOUR_S = 3600.0


@dataclass(frozen=True)
class RankedConfigurations:
    """`best[j]`: the places of job j's configurations, in order. `value[j]`: their $, or seconds
    where late.

    `count[j]`: from how many of them one is drawn: D*_j, or all possible ones if D*_j is empty.
    `kind` and `gpus` are by configuration. `shapes[j]`: the places in `shape_kind` and
    `shape_gpus`, in the same order.
    """

    kind: Ints
    gpus: Ints
    best: Ints
    value: Floats
    count: Ints
    shape_kind: Ints
    shape_gpus: Ints
    shapes: Ints


def ranked_configurations(situation: Situation, *, in_time: bool = True) -> RankedConfigurations:
    """`in_time`: an end on the due date meets it (the paper's prose says before)."""
    kinds = situation.catalogue.kinds
    found = configurations(situation.catalogue)
    rows = [(kinds.index(rented.kind), gpus, rented.price_per_hour) for _, rented, gpus in found]
    kind = np.array([row[0] for row in rows], dtype=np.int64)
    gpus = np.array([row[1] for row in rows], dtype=np.int64)
    price = np.array([row[2] for row in rows])
    best, value, makes = _order(situation, kind, gpus, price, in_time)
    made = makes.sum(axis=1)
    possible = np.isfinite(situation.time[:, kind, gpus - 1]).sum(axis=1)
    shape_kind, shape_gpus = np.nonzero(situation.catalogue.smallest[:, 1:] >= 0)
    cheapest = situation.catalogue.price[shape_kind, shape_gpus + 1]
    shapes, _, _ = _order(situation, shape_kind, shape_gpus + 1, cheapest, in_time)
    return RankedConfigurations(
        kind=kind,
        gpus=gpus,
        best=best,
        value=value,
        count=np.where(made > 0, made, possible),
        shape_kind=shape_kind,
        shape_gpus=shape_gpus + 1,
        shapes=shapes,
    )


def configurations(catalogue: Catalogue) -> list[tuple[int, NodeType, int]]:
    """(place of the type, type, GPUs) of every configuration, as `RankedConfigurations` counts
    them.
    """
    return [
        (n, catalogue.types[n], gpus)
        for n in catalogue.offered
        for gpus in range(1, catalogue.types[n].gpus + 1)
    ]


def _order(
    situation: Situation, kind: Ints, gpus: Ints, price: Floats, in_time: bool
) -> tuple[Ints, Floats, Bools]:
    """The order of each job's choices, their values in that order, and which of them meet the due
    date.
    """
    time = situation.time[:, kind, gpus - 1]
    due = situation.due[:, None]
    makes = time <= due if in_time else time < due
    with np.errstate(invalid="ignore"):  # inf times a price of 0
        value = np.where(makes, time * (price / _HOUR_S), time)
    order = np.lexsort((value, ~makes), axis=1)
    return order, np.take_along_axis(value, order, axis=1), makes
