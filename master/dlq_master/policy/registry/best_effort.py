"""The order of those who have no promise, where a policy promises deadlines: bands first, and in
each the `spot` of its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dlq_master.model.order.keys import KeyRule
from dlq_master.model.order.order import Ordering
from dlq_master.policy.order.arrival import ARRIVAL
from dlq_master.policy.order.by_key import aged, always, shortest, shortest_service, smallest
from dlq_master.policy.order.expected_left import expected_left
from dlq_master.policy.promise.capacity.rules import Spot
from dlq_master.policy.registry.settings import PolicySettings

_SPOT_KEYS: Mapping[Spot, KeyRule | None] = MappingProxyType(
    {
        Spot.SRTF: always(shortest),
        Spot.SRSF: always(shortest_service),
        Spot.SF: always(smallest),
        Spot.FIFO: None,
    }
)


BY_WORK = frozenset({Spot.EXPECTED, Spot.SRTF, Spot.SRSF})
SPOT_RULES: Mapping[Spot, str] = MappingProxyType(
    {
        Spot.EXPECTED: "the least expected work first",
        Spot.SRTF: "the shortest remaining time first",
        Spot.SRSF: "the smallest remaining service first",
        Spot.SF: "the fewest GPUs first",
        Spot.FIFO: "in the order of arrival",
        Spot.LAS: "the least attained service first",
    }
)


def spot_ordering(chosen: PolicySettings, profile_s: float | None) -> Ordering:
    """Bands before everything else, and in each this order."""
    if chosen.spot is Spot.LAS:
        bounds = chosen.thresholds.bounds
        return Ordering(discipline=chosen.order, thresholds=bounds, bands=True)
    if chosen.spot is Spot.EXPECTED:
        key = expected_left(profile_s, chosen.aging)
        return Ordering(discipline=chosen.order, key=key, bands=True)
    rule = _SPOT_KEYS[chosen.spot]
    if rule is not None and chosen.spot in BY_WORK:
        rule = aged(rule, chosen.aging)
    return replace(ARRIVAL, key=rule, bands=True)
