"""The words of a plot: an act of somebody at an instant, and the cast and weather of a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from world.stage.tape import Stream

Facts = Mapping[str, Any]
LEADER = "leader"  # the master that leads when the act comes
CLIENTS = {"c1": "alice", "c2": "bob", "c3": "alice"}


class Act(NamedTuple):
    """Something that somebody does at an instant."""

    at_s: float
    what: str
    facts: Facts


class Settings(NamedTuple):
    """The cast and the weather of a world; the defaults are the simplest."""

    policy: str = "best-effort"
    gpus: tuple[int, ...] = (2,)  # of each node
    hold_s: float = 60.0
    busy_s: float = 400.0  # then all trouble ends
    order: int = 0  # of callbacks that are ready
    lost: int = 0  # of a thousand calls and answers
    doubled: int = 0  # of a thousand calls
    bad_start: int = 0  # of a thousand launches
    slow_release: int = 0  # of a thousand looks
    hung: int = 0  # of a thousand launches: they take very long to prepare
    drift: float = 0.0
    late_s: float = 0.0  # a killed process takes so long to be gone
    masters: int = 1
    keep_s: float = 0.0  # how long GPUs are kept after a lost node; 0: as the policy says
    focus: str = ""  # what it looks at, in a word


def node_of(draws: Stream, settings: Settings) -> str:
    """Any node."""
    return f"n{draws.below(len(settings.gpus))}"
