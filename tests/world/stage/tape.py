"""Every choice of a world comes from a tape.

A tape has one stream of draws for each label. So one more draw of one part never shifts the draws
of another. A new tape draws from its seed and remembers every draw. A kept tape gives the draws
that it was given; a missing one is 0, and 0 is always the simplest choice.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
Draws = Mapping[str, Mapping[int, int]]  # by label and position; those that are 0 are left out


class Stream:
    """The draws of one label."""

    __slots__ = ("_given", "_random", "taken")

    def __init__(self, seed: str, given: Mapping[int, int] | None) -> None:
        self._random = random.Random(seed).random
        self._given = given
        self.taken: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to below `count`."""
        if self._given is None:
            drawn = int(self._random() * count)
        else:
            drawn = min(self._given.get(len(self.taken), 0), count - 1)
        self.taken.append(drawn)
        return drawn

    def chance(self, permille: int) -> bool:
        """True so often in a thousand."""
        return permille > 0 and self.below(1000) >= 1000 - permille

    def pick(self, options: Sequence[T]) -> T:
        """One of them; the first is the simplest."""
        return options[self.below(len(options))]

    def spread(self, least: float, most: float) -> float:
        """A number between both, in a thousand steps; the least is the simplest."""
        return least + (most - least) * self.below(1001) / 1000.0


class Tape:
    """All streams of one world."""

    def __init__(self, seed: int, draws: Draws | None = None) -> None:
        """`draws` None: they come from the seed."""
        self.seed = seed
        self._draws = draws
        self._streams: dict[str, Stream] = {}

    def stream(self, label: str) -> Stream:
        """The stream of this label."""
        found = self._streams.get(label)
        if found is None:
            given = None if self._draws is None else self._draws.get(label, {})
            found = self._streams[label] = Stream(f"{self.seed}/{label}", given)
        return found

    def taken(self) -> dict[str, dict[int, int]]:
        """All draws until now that were not 0."""
        return {
            label: found
            for label, stream in sorted(self._streams.items())
            if (found := {at: drawn for at, drawn in enumerate(stream.taken) if drawn})
        }
