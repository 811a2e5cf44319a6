"""How long jobs of a family needed for their first steps, and whether such jobs tell steps at all.

A time is from the instant at which all ranks ran. So it has no wait, no image and no launch in it,
but the loading of a checkpoint and a compilation. A family has the last `KEPT` of them, from all
attempts. A job that completed without any step is remembered too: its family tells none. The rows
are written with the others of what was learned (`model/cluster/learned.py`), so a master that
starts again knows them.
"""

from __future__ import annotations

from collections.abc import Mapping

KEPT = 20  # of a family
FAMILIES_KEPT = 10_000
FEWEST = 5  # first steps from which it is known that a family is quick
NO_STEP = -1.0  # in the place of a time


class FirstSteps:
    """By family, the latest last. `changes` rises with every end that is learned."""

    __slots__ = ("changes", "families")

    def __init__(self) -> None:
        self.families: dict[str, tuple[float, ...]] = {}
        self.changes = 0

    def learn(self, family: str, took_s: float) -> None:
        """A first step took so long, or a job has completed with `NO_STEP`."""
        if not family:
            return
        self.changes += 1
        known = self.families.pop(family, ())  # the latest stands last
        self.families[family] = (*known, round(took_s, 3))[-KEPT:]
        if len(self.families) > FAMILIES_KEPT:
            del self.families[next(iter(self.families))]

    def tells_steps(self, family: str) -> bool | None:
        """Whether the last job of this family told steps; None: there was none."""
        known = self.families.get(family)
        return None if not known else known[-1] != NO_STEP

    def longest_s(self, family: str) -> tuple[float, bool]:
        """The longest first step of this family, 0 without any; and whether enough are known."""
        known = [took_s for took_s in self.families.get(family, ()) if took_s != NO_STEP]
        return max(known, default=0.0), len(known) >= FEWEST

    def recollect(self, families: Mapping[str, tuple[float, ...]], changes: int) -> None:
        """Know these, as another master did after so many changes."""
        self.families, self.changes = dict(families), changes
