"""The prefix-capacity model: the demand of promised deadlines on the first t slots, for every t.

Job i has a fixed width of G_i GPUs, needs RL_i slots, and may use slots 1 to d_i. It may be stopped
at the end of every slot, and could start now. If slots could be given in fractions, there would be
a simple test. A choice of last slots d_i is feasible if and only if for every set S of slots

    sum_i G_i max(0, RL_i - |[1, d_i] \\ S|) <= sum_{k in S} M_k           (Gale and Hoffman).

All windows [1, d_i] are prefixes. So of all sets of t slots, the prefix [1, t] has the largest
demand of every job. If capacity never falls, testing the prefixes suffices; if it does, the test is
necessary. W(t), the left side, bends upwards by G_i after slot d_i - RL_i and downwards after d_i.
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
    """The capacity that jobs leave in each prefix: `left[t]` = sum of M_k up to t, minus W(t).

    For t = 0 to `horizon`. A job is added or removed in O(horizon).
    """

    __slots__ = ("_upto", "horizon", "left")

    def __init__(self, grid: Grid, horizon: int) -> None:
        self.horizon = horizon
        self._upto = np.arange(horizon + 1, dtype=np.int64)
        self.left: Slots = np.zeros(horizon + 1, dtype=np.int64)
        gpus_of(grid, horizon).cumsum(out=self.left[1:])

    def copy(self) -> SlotDemand:
        """An independent copy."""
        return self.upto(self.horizon)

    def upto(self, horizon: int) -> SlotDemand:
        """An independent copy up to a `horizon` no larger than this one's."""
        other = SlotDemand.__new__(SlotDemand)
        other.horizon, other._upto = horizon, self._upto[: horizon + 1]
        other.left = self.left[: horizon + 1].copy()
        return other

    def of(self, width: int, needed: int, last: int) -> Slots:
        """The demand G max(0, RL - max(0, d - t)) of a job for every t."""
        taken: Slots = width * np.maximum(0, needed - np.maximum(0, last - self._upto))
        return taken

    def fits(self, width: int, needed: int, last: int) -> bool:
        """Whether every prefix has room for one more job; exact in fractions."""
        return needed <= last and bool((self.of(width, needed, last) <= self.left).all())

    def add(self, width: int, needed: int, last: int) -> None:
        """Add a job."""
        self.left -= self.of(width, needed, last)

    def add_all(self, jobs: Iterable[tuple[int, int, int]]) -> None:
        """Add jobs (width, needed, last) in O(jobs + horizon)."""
        self.left -= demand(jobs, self.horizon)

    def remove(self, width: int, needed: int, last: int) -> None:
        """Remove a job."""
        self.left += self.of(width, needed, last)

    def fit_all(self, jobs: Iterable[tuple[int, int, int]]) -> bool:
        """Whether jobs (width, needed, last) fit together beside those added."""
        return bool((demand(jobs, self.horizon) <= self.left).all())

    def feasible(self) -> bool:
        """Whether all jobs that were added fit."""
        return bool((self.left >= 0).all())

    def earliest(self, width: int, needed: int) -> int | None:
        """The least d with which one more job would fit, by one scan; None: not within the horizon.

        A prefix t has room for floor(left(t) / G) slots of the job, and the others come later. So d
        >= t + RL - floor(left(t) / G) wherever that room is less than RL.
        """
        if not self.feasible():
            return None
        room = self.left // width
        short = room < needed
        at = int((self._upto[short] + needed - room[short]).max(initial=needed))
        return at if at <= self.horizon else None


def gpus_of(grid: Grid, count: int) -> Slots:
    """The GPUs in each of the first `count` slots."""
    found: Slots = np.full(count, grid.capacity[-1], dtype=np.int64)
    first = grid.capacity[:count]
    found[: len(first)] = first
    return found


def demand(jobs: Iterable[tuple[int, int, int]], horizon: int) -> Slots:
    """W(t) of jobs (width, needed, last) for t = 0 to `horizon`, in O(jobs + horizon)."""
    bends = np.zeros(horizon + 2, dtype=np.int64)
    for width, needed, last in jobs:
        short = max(0, needed - last)  # slots that it lacks even if it were alone: W(0)
        bends[0] += width * short
        bends[1] -= width * short
        bends[min(max(0, last - needed) + 1, horizon + 1)] += width
        bends[min(last + 1, horizon + 1)] -= width
    return bends[: horizon + 1].cumsum().cumsum()
