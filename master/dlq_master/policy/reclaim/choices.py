"""The reclaim rules by name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from dlq_master.policy.reclaim import rules
from dlq_master.policy.reclaim.demand import Choice, Demand
from dlq_master.policy.reclaim.exact import exact, least_lost


class Reclaiming(NamedTuple):
    """The servers that go, with the dice for rules that draw; `solves`: scipy is needed."""

    name: str
    choose: Callable[[Demand, Random], Choice]
    solves: bool = False


class ReclaimRules(NamedTuple):
    """`groups`: the placement keeps bases and the rest apart; `resizes`: elastic jobs may shrink
    instead of stopping."""

    rule: Reclaiming
    groups: bool
    resizes: bool


EXACT = Reclaiming("exact", lambda demand, _dice: exact(demand), solves=True)
ALGORITHM_1 = Reclaiming("aryl", lambda demand, _dice: rules.algorithm_1(demand))
RECLAIMS = {
    rule.name: rule
    for rule in (
        EXACT,
        ALGORITHM_1,
        Reclaiming("least-lost", lambda demand, _dice: least_lost(demand), solves=True),
        Reclaiming("random", lambda demand, dice: rules.at_random(dice)(demand)),
        Reclaiming("scf", lambda demand, _dice: rules.smallest_count(demand)),
        Reclaiming("ssf", lambda demand, _dice: rules.smallest_fraction(demand)),
        Reclaiming("lsf", lambda demand, _dice: rules.largest_fraction(demand)),
        Reclaiming("static", lambda demand, _dice: rules.static(demand)),
    )
}
