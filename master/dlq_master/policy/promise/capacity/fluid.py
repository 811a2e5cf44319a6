"""The prefix-capacity model: the demand of a choice of deadlines on the first t slots, for every t.

Jobs run at fixed width, may be stopped at every slot's end, and all are there now. If the slots
could be given in fractions, there is a simple test. A choice of last slots d_i is feasible if and
only if for every set S of slots

    sum_i G_i max(0, RL_i - |[1, d_i] \\ S|) <= sum_{k in S} M_k           (Gale and Hoffman).

All windows [1, d_i] are prefixes, so among the sets of t slots the prefix [1, t] asks for most of
every job at once. If capacity never falls the prefixes are enough, and if it does they are
necessary. W(t), the left side, bends by G_i upwards after slot d_i - RL_i and downwards after d_i.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.leases import Grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

Slots: TypeAlias = "NDArray[np.int64]"


class SlotDemand:
    """W(t) for t = 0 to `horizon`, and what is left of the capacity; jobs come and go in
    O(horizon).
    """

    __slots__ = ("_upto", "horizon", "left")

    def __init__(self, grid: Grid, horizon: int) -> None:
        self.horizon = horizon
        self._upto = np.arange(horizon + 1, dtype=np.int64)
        self.left: Slots = np.zeros(horizon + 1, dtype=np.int64)
        gpus_of(grid, horizon).cumsum(out=self.left[1:])

    def copy(self) -> SlotDemand:
        """The same, to be changed on its own."""
        return self.upto(self.horizon)

    def upto(self, horizon: int) -> SlotDemand:
        """The same as far as there, to be changed on its own; `horizon` is no more than its own."""
        other = SlotDemand.__new__(SlotDemand)
        other.horizon, other._upto = horizon, self._upto[: horizon + 1]
        other.left = self.left[: horizon + 1].copy()
        return other

    def of(self, width: int, needed: int, last: int) -> Slots:
        """G max(0, RL - max(0, d - t)) for every t."""
        taken: Slots = width * np.maximum(0, needed - np.maximum(0, last - self._upto))
        return taken

    def fits(self, width: int, needed: int, last: int) -> bool:
        """Whether a job more leaves every prefix within its capacity; exact in fractions."""
        return needed <= last and bool((self.of(width, needed, last) <= self.left).all())

    def add(self, width: int, needed: int, last: int) -> None:
        """Take a job in."""
        self.left -= self.of(width, needed, last)

    def add_all(self, jobs: Iterable[tuple[int, int, int]]) -> None:
        """Take in jobs (width, needed, last), in O(jobs + horizon)."""
        self.left -= demand(jobs, self.horizon)

    def remove(self, width: int, needed: int, last: int) -> None:
        """Let a job out again."""
        self.left += self.of(width, needed, last)

    def fit_all(self, jobs: Iterable[tuple[int, int, int]]) -> bool:
        """Whether jobs (width, needed, last) more fit together."""
        return bool((demand(jobs, self.horizon) <= self.left).all())

    def feasible(self) -> bool:
        """Whether all that were taken in fit."""
        return bool((self.left >= 0).all())

    def earliest(self, width: int, needed: int) -> int | None:
        """The least d with which a job more would fit, by one scan; None if not within the horizon.

        A prefix t with room for fewer than RL slots of the job, floor(left(t) / G), must leave the
        others to later ones. So d >= t + RL - floor(left(t) / G).
        """
        if not self.feasible():
            return None
        room = self.left // width
        short = room < needed
        at = int((self._upto[short] + needed - room[short]).max(initial=needed))
        return at if at <= self.horizon else None


def gpus_of(grid: Grid, count: int) -> Slots:
    """GPUs in each of the first `count` slots."""
    found: Slots = np.full(count, grid.capacity[-1], dtype=np.int64)
    first = grid.capacity[:count]
    found[: len(first)] = first
    return found


def demand(jobs: Iterable[tuple[int, int, int]], horizon: int) -> Slots:
    """W(t), t = 0 to `horizon`, of jobs (width, needed, last), in O(jobs + horizon)."""
    bends = np.zeros(horizon + 2, dtype=np.int64)
    for width, needed, last in jobs:
        short = max(0, needed - last)  # slots that it lacks even if it were alone: W(0)
        bends[0] += width * short
        bends[1] -= width * short
        bends[min(max(0, last - needed) + 1, horizon + 1)] += width
        bends[min(last + 1, horizon + 1)] -= width
    return bends[: horizon + 1].cumsum().cumsum()
