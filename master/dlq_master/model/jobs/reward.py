"""The worth of a job's completion over time: step functions (Chronus, section 3.3.1).

A reward function is a sequence of steps (deadline, reward). A job that completes by the first
deadline earns the first reward, else by the second the second, and after the last one `LATE`.
Rewards never rise and lie in [1, 100]. Strict jobs have one step of 100, soft jobs several,
best-effort jobs none. Deadlines are seconds from whatever instant the completion is counted from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

FULL, LATE = 100.0, 1.0


class Step(NamedTuple):
    """Completion by `deadline_s` earns `reward`, unless an earlier step earns more."""

    deadline_s: float
    reward: float


Steps = tuple[Step, ...]
BEST_EFFORT: Steps = ()


def strict(deadline_s: float) -> Steps:
    """All or (almost) nothing."""
    return soft([(deadline_s, FULL)])


def soft(steps: Iterable[tuple[float, float]]) -> Steps:
    """Checked steps. ValueError names the first that is wrong."""
    made = tuple(Step(float(deadline), float(reward)) for deadline, reward in steps)
    for number, step in enumerate(made, 1):
        if not (isfinite(step.deadline_s) and step.deadline_s > 0):
            raise ValueError(
                f"deadline {number} is {step.deadline_s:g} s: want a positive finite time"
            )
        if not LATE <= step.reward <= FULL:
            raise ValueError(f"reward {number} is {step.reward:g}: want {LATE:g} to {FULL:g}")
        if number > 1 and not step.deadline_s > made[number - 2].deadline_s:
            raise ValueError(
                f"deadline {number} is not after deadline {number - 1}: want them to rise"
            )
        if number > 1 and step.reward > made[number - 2].reward:
            raise ValueError(f"reward {number} is more than reward {number - 1}: want none to rise")
    return made


def attained(steps: Sequence[tuple[float, float]], completion_s: float) -> float:
    """RW: the reward of a completion at that time."""
    return next((reward for deadline, reward in steps if completion_s <= deadline), LATE)


def missed_share(steps: Sequence[tuple[float, float]], completion_s: float) -> float:
    """(RW_max - RW) / (RW_max - RW_min): 0 for the best reward, 1 for the least, 0 if they are the
    same.
    """
    best = steps[0][1] if steps else LATE
    return (best - attained(steps, completion_s)) / (best - LATE) if best > LATE else 0.0


def wdmr(completions: Iterable[tuple[Sequence[tuple[float, float]], float]]) -> float | None:
    """The weighted deadline miss rate: the mean missed share of the jobs that have steps; None
    without any.

    Chronus' equation 9 as printed is the attainment, 1 - this.
    """
    shares = [missed_share(steps, at) for steps, at in completions if steps]
    return sum(shares) / len(shares) if shares else None
