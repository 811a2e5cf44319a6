"""The rules of a policy that profiles."""

from __future__ import annotations

from dataclasses import dataclass

PROFILE_S = 300.0  # T_profile of Chronus (section 3.2)
FLOOR = 2  # a trial is on two nodes at most: with fewer, one may have to wait for a hole

_SHARE = 4  # of the nodes, one in so many at most


def floor_of(floor: int, nodes: int) -> int:
    """How many of so many nodes are always for trials."""
    return min(floor, max(1, nodes // _SHARE), max(0, nodes - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRules:
    """`profile_s`: seconds that a trial takes, from its first beat.

    `floor`: nodes that are always for trials, and never promised to anybody.
    `submit_gpus`: GPUs that one user may send to be profiled within `profile_s`; None: any number.
    """

    profile_s: float = PROFILE_S
    floor: int = FLOOR
    submit_gpus: int | None = None
