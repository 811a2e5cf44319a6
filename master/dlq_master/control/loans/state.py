"""The loop's state of loans beside the flags of nodes: words, plans, and whether the load is
followed.
"""

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlq_master.control.stimuli.loans import Found, ReclaimServers
from dlq_master.model.ids import NodeId
from dlq_master.policy.reclaim.demand import Demand

MOST_PLANS = 200  # of which each can still be carried out


class PlannedReclaim(NamedTuple):
    """A reclaim that was told to somebody. `effects`: tells apart what it does."""

    ask: ReclaimServers
    found: Found
    demand: Demand
    effects: str


class Followed(NamedTuple):
    """The load of the inference side that is followed. `busy`: the share of its servers in use, at
    `at_s`. `lent`: so many are to be lent by that. `fault`: why the last look told nothing, or
    could not be followed."""

    source: str
    busy: float | None = None
    at_s: float | None = None
    lent: int = 0
    fault: str = ""


class SwitchedOff(NamedTuple):
    """The person that switched the controller off, and when."""

    by: str
    at_s: float


SWITCH: Final = "loans_off"  # key of meta: a SwitchedOff as JSON; empty: the load is followed


def read_switch(stored: str | None) -> SwitchedOff | None:
    """What `written` wrote."""
    return SwitchedOff(*json.loads(stored)) if stored else None


def written(off: SwitchedOff | None) -> str:
    """As it is stored."""
    return "" if off is None else json.dumps(off)


@dataclass(slots=True)
class LoanState:
    """`asked`: the number under which a node was last asked what is on its GPUs, and has not
    answered. `words`: the reasons for which servers wait.
    """

    next_number: int = 1
    asked: dict[NodeId, tuple[int, int]] = field(default_factory=dict)  # and in which session
    words: dict[NodeId, str] = field(default_factory=dict)
    followed: Followed | None = None
    off: SwitchedOff | None = None  # the only thing here that is stored
    plans: OrderedDict[str, PlannedReclaim] = field(default_factory=OrderedDict)

    def keep(self, token: str, planned: PlannedReclaim) -> None:
        """Remember a plan; the oldest is forgotten."""
        self.plans[token] = planned
        self.plans.move_to_end(token)
        while len(self.plans) > MOST_PLANS:
            self.plans.popitem(last=False)

    def forget(self, node_id: NodeId) -> None:
        """It waits for nothing any more."""
        self.asked.pop(node_id, None)
        self.words.pop(node_id, None)
