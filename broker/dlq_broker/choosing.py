"""Rules that choose among offers: pure, stated as criteria in order, with words for each place.

A rule is a row of criteria. The first criterion in which two offers differ decides between them.
Offers that differ in none stand in the order of the list, or in one drawn by lot.

A rule may draw, by a generator that it is given. A forecast errs, and its cluster says by how much:
one start in ten comes before the range, and one after it. If the earliest offer always won, one
cluster would get all jobs of an hour, often the one that errs most. So each start is drawn from its
own range: a cluster wins as often as it is likely to be the first. The order of a list is the same
for each of its jobs, and would fill one cluster with them. So equal offers stand in another order
each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from random import Random
from typing import NamedTuple

from dlq_broker.offers import GUARANTEED, UNGUARANTEED, ClusterOffer
from dlq_common.text.units import format_duration

# Instants are compared to the minute: no forecast is better. A range within a minute is no error.
_SAME_S = 60.0
# Of a normal distribution, one value in ten is so many standard deviations above the middle.
_ONE_IN_TEN = 1.2816
# No draw goes further: a range says nothing of rarer starts.
_FURTHEST = 2.0


class Criterion(NamedTuple):
    """A lower `key` is better. `ahead` and `behind` say it of the better and of the worse offer."""

    key: Callable[[ClusterOffer], float]
    ahead: Callable[[ClusterOffer, ClusterOffer], str]
    behind: Callable[[ClusterOffer, ClusterOffer], str]


class ChoiceRule(NamedTuple):
    """`draws`: by lot where forecasts cannot tell offers apart (`_drawn_by_lot`)."""

    criteria: tuple[Criterion, ...]
    draws: bool = False


class Ranking(NamedTuple):
    """The offers, the best one first, and the reason for the place of each cluster."""

    order: tuple[ClusterOffer, ...]
    reasons: Mapping[str, str]


def ranked(offers: Sequence[ClusterOffer], rule: ChoiceRule, chance: Random) -> Ranking:
    """Put offers in order. The best one is compared with the second, all others with the best.
    `chance`: for rules that draw.
    """
    if rule.draws:
        offers = _drawn_by_lot(offers, chance)
    order = tuple(sorted(offers, key=lambda offer: _keys(offer, rule)))
    first, later = (_WON, _LOST) if rule.draws else ("first in the list", "later in the list")
    reasons = {}
    for other in order[1:]:
        decides = _decides(order[0], other, rule)
        reasons[other.cluster] = later if decides is None else decides.behind(order[0], other)
    if order:
        best = order[0]
        decides = None if len(order) == 1 else _decides(best, order[1], rule)
        alone = "the only offer" if len(order) == 1 else first
        reasons[best.cluster] = alone if decides is None else decides.ahead(best, order[1])
    return Ranking(order, reasons)


def is_better(one: ClusterOffer, other: ClusterOffer, rule: ChoiceRule) -> bool:
    """Whether the first offer is the better one by its own words, without a draw."""
    told = [offer._replace(drawn_s=0.0) for offer in (one, other)]
    return _keys(told[0], rule) < _keys(told[1], rule)


def _keys(offer: ClusterOffer, rule: ChoiceRule) -> list[float]:
    return [one.key(offer) for one in rule.criteria]


def _decides(best: ClusterOffer, other: ClusterOffer, rule: ChoiceRule) -> Criterion | None:
    return next((one for one in rule.criteria if one.key(best) != one.key(other)), None)


# --- lots ----------------------------------------------------------------------------------------


def _drawn_by_lot(offers: Sequence[ClusterOffer], chance: Random) -> list[ClusterOffer]:
    """The offers in an order by lot, each with the seconds that its start was drawn later.

    Run times err too, but alike at all clusters. So the range of the end is not drawn from.
    """
    by_lot = chance.sample(offers, len(offers))
    return [one._replace(drawn_s=_drawn_s(one, chance.gauss(0.0, 1.0))) for one in by_lot]


def _drawn_s(offer: ClusterOffer, deviations: float) -> float:
    """So many standard deviations from the likely start. The sides of a range differ. 0: the side
    is within the precision of every forecast, or has no end; or there is no start.
    """
    if offer.start is None:
        return 0.0
    edge_s = offer.start.earliest_s if deviations < 0.0 else offer.start.latest_s
    width_s = abs(edge_s - offer.start.likely_s)
    if width_s <= _SAME_S or not isfinite(width_s):
        return 0.0
    return max(-_FURTHEST, min(_FURTHEST, deviations)) * width_s / _ONE_IN_TEN


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


def _drawn(verb: str, at_s: Callable[[ClusterOffer], float]) -> Criterion:
    """The same instants, as drawn. The words tell where a lot has turned the order of forecasts."""

    def ahead(best: ClusterOffer, other: ClusterOffer) -> str:
        sooner_s = _grid(at_s(best)) - _grid(at_s(other))
        if sooner_s < 0.0:
            return _first(verb, other, at_s(best), at_s(other))
        if sooner_s == 0.0:
            return _WON
        return f"by lot: {other.cluster} would {verb} {_apart(best, other)} earlier, {_UNSURE}"

    def behind(best: ClusterOffer, other: ClusterOffer) -> str:
        later_s = _grid(at_s(other)) - _grid(at_s(best))
        if later_s > 0.0:
            return _later(verb, at_s(best), at_s(other))
        if later_s == 0.0:
            return _LOST
        return f"lost the lot: would {verb} {_apart(best, other)} earlier, {_UNSURE}"

    def _apart(best: ClusterOffer, other: ClusterOffer) -> str:
        return format_duration(at_s(best) - at_s(other))

    return Criterion(lambda offer: _grid(at_s(offer) + offer.drawn_s), ahead, behind)


_UNSURE = "and forecasts err by more"
_WON, _LOST = "by lot among equal offers", "as good, and lost the lot"
_DRAWN_END = _drawn("end", lambda offer: offer.likely_end_s)
_DRAWN_START = _drawn("start", lambda offer: offer.likely_start_s)


def _cost(offer: ClusterOffer) -> float:
    """To the cent. A cluster without a price costs nothing."""
    return round(offer.cost or 0.0, 2)


_COST = Criterion(
    _cost,
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} less than {other.cluster}",
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} more",
)

RULES: Mapping[str, ChoiceRule] = {
    "spread": ChoiceRule((_FORECAST, _PROMISE, _DRAWN_END, _DRAWN_START, _COST), draws=True),
    "soonest": ChoiceRule((_FORECAST, _PROMISE, _END, _START, _COST)),
    "cheapest": ChoiceRule((_FORECAST, _PROMISE, _COST, _END, _START)),
}
# The simulation of docs/policies/many-clusters-at-scale.md has decided it.
DEFAULT_RULE = "spread"
