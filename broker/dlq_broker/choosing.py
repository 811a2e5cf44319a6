"""Rules that choose among offers: pure, stated as criteria in order, with words for each place.

A rule is a row of criteria. The first criterion in which two offers differ decides between them.
Offers that differ in none stand in the order of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from dlq_broker.offers import GUARANTEED, UNGUARANTEED, ClusterOffer
from dlq_common.text.units import format_duration

# Instants are compared to the minute: no forecast is better than that.
_SAME_S = 60.0


class Criterion(NamedTuple):
    """A lower `key` is better. `ahead` and `behind` say it of the better and of the worse offer."""

    key: Callable[[ClusterOffer], float]
    ahead: Callable[[ClusterOffer, ClusterOffer], str]
    behind: Callable[[ClusterOffer, ClusterOffer], str]


ChoiceRule = tuple[Criterion, ...]


class Ranking(NamedTuple):
    """The offers, the best one first, and the reason for the place of each cluster."""

    order: tuple[ClusterOffer, ...]
    reasons: Mapping[str, str]


def ranked(offers: Sequence[ClusterOffer], rule: ChoiceRule) -> Ranking:
    """Put offers in order. The best one is compared with the second, all others with the best."""
    order = tuple(sorted(offers, key=lambda offer: [one.key(offer) for one in rule]))
    reasons = {}
    for other in order[1:]:
        decides = _decides(order[0], other, rule)
        reasons[other.cluster] = (
            "later in the list" if decides is None else decides.behind(order[0], other)
        )
    if order:
        best = order[0]
        decides = None if len(order) == 1 else _decides(best, order[1], rule)
        alone = "the only offer" if len(order) == 1 else "first in the list"
        reasons[best.cluster] = alone if decides is None else decides.ahead(best, order[1])
    return Ranking(order, reasons)


def _decides(best: ClusterOffer, other: ClusterOffer, rule: ChoiceRule) -> Criterion | None:
    return next((one for one in rule if one.key(best) != one.key(other)), None)


# --- criteria -------------------------------------------------------------------------------------


def _no_forecast(offer: ClusterOffer) -> float:
    return float(offer.start is None and offer.end is None)


_FORECAST = Criterion(
    _no_forecast,
    lambda best, other: f"{other.cluster} has no forecast",
    lambda best, other: f"no forecast: {other.unknown or 'no start was seen'}",
)


def _promise_words(best: ClusterOffer, other: ClusterOffer) -> str:
    if other.promise == UNGUARANTEED:
        return "its deadline would not be promised"
    return "no verdict on its deadline"


_PROMISE = Criterion(
    lambda offer: {GUARANTEED: 0.0, UNGUARANTEED: 2.0}.get(offer.promise, 1.0),
    lambda best, other: (
        "its deadline would be promised"
        if best.promise == GUARANTEED
        else f"{other.cluster} would not promise its deadline"
    ),
    _promise_words,
)


def _grid(at_s: float) -> float:
    return at_s // _SAME_S if isfinite(at_s) else inf


def _later(verb: str, best_s: float, other_s: float) -> str:
    if not isfinite(other_s):
        return f"would {verb} later than its forecast reaches"
    return f"would {verb} {format_duration(other_s - best_s)} later"


def _first(verb: str, other: ClusterOffer, best_s: float, other_s: float) -> str:
    if not isfinite(other_s):
        return f"would {verb} first"
    return f"would {verb} first, {format_duration(other_s - best_s)} before {other.cluster}"


_END = Criterion(
    lambda offer: _grid(offer.likely_end_s),
    lambda best, other: _first("end", other, best.likely_end_s, other.likely_end_s),
    lambda best, other: _later("end", best.likely_end_s, other.likely_end_s),
)
_START = Criterion(
    lambda offer: _grid(offer.likely_start_s),
    lambda best, other: _first("start", other, best.likely_start_s, other.likely_start_s),
    lambda best, other: _later("start", best.likely_start_s, other.likely_start_s),
)


def _cost(offer: ClusterOffer) -> float:
    """To the cent. A cluster without a price costs nothing."""
    return round(offer.cost or 0.0, 2)


_COST = Criterion(
    _cost,
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} less than {other.cluster}",
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} more",
)

RULES: Mapping[str, ChoiceRule] = {
    "soonest": (_FORECAST, _PROMISE, _END, _START, _COST),
    "cheapest": (_FORECAST, _PROMISE, _COST, _END, _START),
}
DEFAULT_RULE = "soonest"
