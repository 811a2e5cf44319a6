"""Deaths of any part at any of its steps: agents, programs of people, and shims.

A step is what stands between two awaits. Masters die so in `plot.py`. In one of four seeds these
come on top of all other trouble, from a stream of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from world.stage.acts import CLIENTS, Act, Facts, Settings, node_of
from world.stage.tape import Stream

OPERATOR = "op"
Drawn = Callable[[Stream, Settings], Facts]


def _agent(draws: Stream, settings: Settings) -> Facts:
    return {"node": node_of(draws, settings), "callbacks": 1 + draws.below(draws.pick((4, 12, 60)))}


def _client(draws: Stream, settings: Settings) -> Facts:
    return {"program": draws.pick((*CLIENTS, *CLIENTS, OPERATOR)), "callbacks": draws.below(9)}


def _shim(draws: Stream, settings: Settings) -> Facts:
    return {
        "node": node_of(draws, settings),
        "steps": draws.pick((0, 1, 2, 3)),
        "which": draws.below(4),
    }


DEATHS: Mapping[str, tuple[int, Drawn]] = {
    "kill_agent": (8, _agent),
    "kill_client": (12, _client),
    "kill_shim": (4, _shim),
}


def deaths(draws: Stream, settings: Settings) -> list[Act]:
    """Of some of the three kinds; most seeds have none."""
    if draws.below(4) != 3:
        return []
    acts = []
    for what, (most, facts_of) in DEATHS.items():
        for _ in range(1 + draws.below(most) if draws.below(3) else 0):
            at_s = round(draws.spread(1.0, 0.8 * settings.busy_s), 3)
            acts.append(Act(at_s, what, facts_of(draws, settings)))
            if what == "kill_client" and draws.below(2):  # it leaves while its call is served
                slow = {"by_s": draws.pick((0.2, 1.0)), "for_s": draws.pick((3.0, 10.0))}
                acts.append(Act(at_s, "slow_disk", slow))
    return acts
