"""The small instances of `optimum`: drawn from these seeds, which were fixed before the code.

Five to eight jobs arrive within six hours at four GPUs, and run for one to six whole hours. The
constants of the policy may be chosen on `FITTED` alone. `HELD_OUT` is what the figures are from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

GPUS = 4
LATEST_H, LONGEST_H = 6, 6
WIDTHS = {"mixed": (1, 1, 2, 2, 3, 4), "wide": (2, 3, 4)}
COUNTS = {"mixed": 150, "wide": 80}
FITTED, HELD_OUT = "fitted", "held out"


class SmallJob(NamedTuple):
    """In whole hours."""

    submit_h: int
    gpus: int
    hours: int


Instance = tuple[SmallJob, ...]


def instances(kind: str, part: str = HELD_OUT, count: int | None = None) -> Iterator[Instance]:
    """`kind`: a key of `WIDTHS`."""
    for number in range(COUNTS[kind] if count is None else count):
        dice = random.Random(f"optimum/{part}/{kind}/{number}")
        yield tuple(
            sorted(
                SmallJob(
                    dice.randint(0, LATEST_H),
                    dice.choice(WIDTHS[kind]),
                    dice.randint(1, LONGEST_H),
                )
                for _ in range(dice.randint(5, 8))
            )
        )
