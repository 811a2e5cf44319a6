"""Rules that choose among offers: criteria in order, with words for each place. Pure.

The first criterion in which two offers differ decides between them. Offers that differ in none keep
the order of the list, or a random one. A rule may draw, with a generator that it is given.

A forecast errs, and its cluster says by how much: one start in ten is before the range, and one in
ten after it. If the earliest offer always won, one cluster would get all jobs of an hour, often the
one that errs most. So each start is drawn from its own range. A cluster then wins as often as it is
likely to be the first. Equal offers get a random order, because the order of the list would send
all jobs to one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from operator import itemgetter
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
    """A lower `key` is better. It gets the offer, and the drawn seconds by which its start is
    later.

    `ahead` and `behind` describe the better and the worse offer.
    """

    key: Callable[[ClusterOffer, float], float]
    ahead: Callable[[ClusterOffer, ClusterOffer], str]
    behind: Callable[[ClusterOffer, ClusterOffer], str]


class ChoiceRule(NamedTuple):
    """`draws`: chance decides where forecasts cannot (`_lots`)."""

    criteria: tuple[Criterion, ...]
    draws: bool = False


class Ranking(NamedTuple):
    """The offers, the best one first, and the reason for the place of each cluster."""

    order: tuple[ClusterOffer, ...]
    reasons: Mapping[str, str]


def ranked(offers: Sequence[ClusterOffer], rule: ChoiceRule, chance: Random) -> Ranking:
    """Rank offers. The best one is compared with the second, all others with the best.

    `chance`: for rules that draw.
    """
    lots = _lots(offers, chance) if rule.draws else [(offer, 0.0) for offer in offers]
    placed = sorted(((_keys(rule, *lot), lot[0]) for lot in lots), key=itemgetter(0))
    order = tuple(offer for _, offer in placed)
    first, later = (_WON, _LOST) if rule.draws else ("first in the list", "later in the list")
    reasons = {}
    for keys, other in placed[1:]:
        decides = _decides(rule, placed[0][0], keys)
        reasons[other.cluster] = later if decides is None else decides.behind(order[0], other)
    if len(order) == 1:
        reasons[order[0].cluster] = "the only offer"
    elif order:
        decides = _decides(rule, placed[0][0], placed[1][0])
        reasons[order[0].cluster] = first if decides is None else decides.ahead(order[0], order[1])
    return Ranking(order, reasons)


def is_better(one: ClusterOffer, other: ClusterOffer, rule: ChoiceRule) -> bool:
    """Whether the first offer is the better one without a draw."""
    return _keys(rule, one, 0.0) < _keys(rule, other, 0.0)


def _keys(rule: ChoiceRule, offer: ClusterOffer, drawn_s: float) -> list[float]:
    return [one.key(offer, drawn_s) for one in rule.criteria]


def _decides(rule: ChoiceRule, best: list[float], other: list[float]) -> Criterion | None:
    """The first criterion in which the keys of two offers differ."""
    by_key = zip(rule.criteria, best, other, strict=True)
    return next((one for one, key, other_key in by_key if key != other_key), None)


# --- lots ----------------------------------------------------------------------------------------


def _lots(offers: Sequence[ClusterOffer], chance: Random) -> list[tuple[ClusterOffer, float]]:
    """The offers in random order, each with the drawn seconds by which its start is later.

    Run times err too, but alike at all clusters, so the range of the end is not drawn from.
    """
    by_lot = chance.sample(offers, len(offers))
    return [(one, _drawn_s(one, chance.gauss(0.0, 1.0))) for one in by_lot]


def _drawn_s(offer: ClusterOffer, deviations: float) -> float:
    """A number of standard deviations from the likely start, in seconds. The sides of a range
    differ.

    0: the side is within the precision of every forecast, or has no end; or there is no start.
    """
    if offer.start is None:
        return 0.0
    edge_s = offer.start.earliest_s if deviations < 0.0 else offer.start.latest_s
    width_s = abs(edge_s - offer.start.likely_s)
    if width_s <= _SAME_S or not isfinite(width_s):
        return 0.0
    return max(-_FURTHEST, min(_FURTHEST, deviations)) * width_s / _ONE_IN_TEN


# --- criteria -------------------------------------------------------------------------------------


_FORECAST = Criterion(
    lambda offer, _: float(offer.start is None and offer.end is None),
    lambda best, other: f"{other.cluster} has no forecast",
    lambda best, other: f"no forecast: {other.unknown or 'no start was seen'}",
)


def _promise_words(best: ClusterOffer, other: ClusterOffer) -> str:
    if other.promise == UNGUARANTEED:
        return "its deadline would not be promised"
    return "no verdict on its deadline"


_PROMISE = Criterion(
    lambda offer, _: {GUARANTEED: 0.0, UNGUARANTEED: 2.0}.get(offer.promise, 1.0),
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


def _instant(verb: str, at_s: Callable[[ClusterOffer], float]) -> Criterion:
    """The earlier instant, as drawn, in words.

    The words tell where a draw has reversed the order of the forecasts.
    """

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

    return Criterion(lambda offer, drawn_s: _grid(at_s(offer) + drawn_s), ahead, behind)


_UNSURE = "and forecasts err by more"
_WON, _LOST = "by lot among equal offers", "as good, and lost the lot"
_END = _instant("end", lambda offer: offer.likely_end_s)
_START = _instant("start", lambda offer: offer.likely_start_s)


def _cost(offer: ClusterOffer) -> float:
    """The cost to the cent. A cluster without a price costs nothing."""
    return round(offer.cost or 0.0, 2)


_COST = Criterion(
    lambda offer, _: _cost(offer),
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} less than {other.cluster}",
    lambda best, other: f"costs {_cost(other) - _cost(best):.2f} more",
)

_SOONEST = ChoiceRule((_FORECAST, _PROMISE, _END, _START, _COST))
RULES: Mapping[str, ChoiceRule] = {
    "spread": _SOONEST._replace(draws=True),
    "soonest": _SOONEST,
    "cheapest": ChoiceRule((_FORECAST, _PROMISE, _COST, _END, _START)),
}
# The simulation of docs/policies/many-clusters-at-scale.md has decided it.
DEFAULT_RULE = "spread"
