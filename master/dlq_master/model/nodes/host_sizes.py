"""The sizes of registered nodes, and requests that these nodes cannot tell apart.

A request for 40 GiB and one for 50 GiB of memory are alike where every node has 64 GiB or more.
Alike requests share one line of waiting jobs, so plans and reasons cost no more for many sizes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping

from dlq_master.model.nodes.node import Node
from dlq_master.model.traits import SIZES, at_least, joined, size_of, sizes_of, split

_Steps = Mapping[str, list[int]]  # what it is a size of -> the different sizes, rising


class HostSizes:
    """All sizes that nodes have told. A value: a change makes another."""

    __slots__ = ("steps",)

    def __init__(self, steps: _Steps) -> None:
        self.steps = steps

    def alike(self, traits: str) -> str | None:
        """The least sizes that leave out the same nodes. None: they leave out no node at all."""
        return joined(filter(None, map(self.least, split(traits))))

    def keeps(self, alike: str | None, former: HostSizes) -> bool:
        """Whether requests that were alike for the former sizes are this one still, all of them."""
        asked = dict(map(size_of, split(alike or "")))
        return all(
            _same_step(asked.get(what, 1) - 1, former.steps.get(what, []), self.steps.get(what, []))
            for what in SIZES
        )

    def least(self, trait: str) -> str:
        """The same of one trait; empty: it leaves out no node."""
        what, least = size_of(trait)
        if not what:
            return trait
        sizes = self.steps.get(what, [])
        smaller = bisect_left(sizes, least)
        return at_least(what, sizes[smaller - 1] + 1) if smaller else ""


class CountedSizes:
    """How many nodes have told each size, kept up node by node."""

    __slots__ = ("_counts", "_told")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._told = HostSizes({})

    def change(self, before: Node | None, node: Node | None) -> HostSizes:
        """The sizes once a node has come (None before), is another, or has gone (None). They are
        the same object where no size has come or gone.
        """
        was, now = _of(before), _of(node)
        self._counts.subtract(was - now)
        self._counts.update(now - was)
        gone = [size for size in was - now if not self._counts[size]]
        come = [size for size in now - was if self._counts[size] == 1]
        if gone or come:
            steps = dict(self._told.steps)
            for size in gone:
                del self._counts[size]
                _remove(steps, *size)
            for size in come:
                _insert(steps, *size)
            self._told = HostSizes(steps)
        return self._told


def _same_step(too_small: int, former: list[int], sizes: list[int]) -> bool:
    """Whether the largest size that is too small is there, and none has come between it and the
    next."""
    place = bisect_right(sizes, too_small)
    if too_small and (not place or sizes[place - 1] != too_small):
        return False
    following = bisect_right(former, too_small)
    return place == len(sizes) or (following < len(former) and sizes[place] >= former[following])


def _insert(steps: dict[str, list[int]], what: str, size: int) -> None:
    steps[what] = [*steps.get(what, [])]
    insort(steps[what], size)


def _remove(steps: dict[str, list[int]], what: str, size: int) -> None:
    place = bisect_left(steps[what], size)
    steps[what] = steps[what][:place] + steps[what][place + 1 :]


def _of(node: Node | None) -> set[tuple[str, int]]:
    return set() if node is None else set(sizes_of(node))
