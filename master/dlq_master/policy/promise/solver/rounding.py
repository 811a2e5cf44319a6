"""From the relaxation to one deadline for each job: insertion, upgrades, swaps and downgrades."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from dlq_master.model.late import np
from dlq_master.policy.promise.solver.relax import Floats, Ints, ModelOptions, Relaxed

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mask: TypeAlias = "NDArray[np.bool_]"
MOST_PASSES = 4
MOST_LOSERS = 3
# The most that a swap may regret: of the distance to the bound, and at least.
_NEAR_SHARE, _NEAR = 0.35, 5.0
_WHOLE = 1 - 1e-6


class DeadlineChoice:
    """A column or none (-1) for each job, and the room `left` in each prefix."""

    __slots__ = ("left", "made", "picks")

    def __init__(self, made: ModelOptions) -> None:
        """Guaranteed jobs have their promised step; no other job has a column."""
        self.made = made
        self.picks: Ints = np.full(len(made.jobs), -1, dtype=np.int64)
        for job in made.must:
            self.picks[job] = made.columns[job][-1]
        self.left: Ints = made.room - made.taken(self.picks)

    def copy(self) -> DeadlineChoice:
        """An independent copy."""
        other = DeadlineChoice.__new__(DeadlineChoice)
        other.made, other.picks, other.left = self.made, self.picks.copy(), self.left.copy()
        return other

    @property
    def gain(self) -> float:
        """The sum of V - 1 of all jobs."""
        return float(self.made.gain[self.picks[self.picks >= 0]].sum())

    def gain_of(self, job: int) -> float:
        """V - 1 of a job's column; 0 without one."""
        return float(self.made.gain[self.picks[job]]) if self.picks[job] >= 0 else 0.0

    def take(self, column: int) -> bool:
        """Give a job a better column; False: it is no better or does not fit, and
        nothing changes.
        """
        job = int(self.made.job[column])
        if self.made.gain[column] <= self.gain_of(job):
            return False
        left = self.left + self._demand_of(job) - self.made.row[column]
        if (left < 0).any():
            return False
        self.picks[job], self.left = column, left
        return True

    def insert(self, columns: Iterable[int]) -> None:
        """Take each column that fits, one after another."""
        for column in columns:
            self.take(int(column))

    def set(self, job: int, column: int) -> None:
        """Give a job a column, or none (-1)."""
        self.left = self.left + self._demand_of(job)
        self.picks[job] = column
        self.left = self.left - self._demand_of(job)

    def concede(self, slot: int, lack: int) -> None:
        """Reduce the room of the prefix that ends with `slot`, where the layout found `lack` GPUs
        too few.

        Jobs then concede columns, at the least loss for the GPUs that become free, until all fit.
        """
        at = min(int(np.searchsorted(self.made.prefix, slot + 1)), len(self.left) - 1)
        self.left[at] = min(0, int(self.left[at])) - lack
        while self.left.min(initial=0) < 0:
            losers, columns, losses, freed = _concessions(self)
            worst = int(self.left.argmin())
            if not len(losses) or not freed[:, worst].any():
                return
            enough = freed[:, worst] >= -self.left[worst]
            helps = enough if enough.any() else freed[:, worst] > 0
            able = np.flatnonzero(helps)
            number = int(
                able[np.argmin(losses[able] / np.minimum(freed[able, worst], -self.left[worst]))]
            )
            self.set(int(losers[number]), columns[number])

    def _demand_of(self, job: int) -> Ints:
        """The demand of a job's present column on each prefix."""
        column = self.picks[job]
        held: Ints = self.made.row[column] if column >= 0 else np.zeros_like(self.left)
        return held


def choose(made: ModelOptions, relaxed: Relaxed, out_of_time: Callable[[], bool]) -> DeadlineChoice:
    """The best choice of two insertion orders, by reduced cost and by reward for the price, after
    swaps.
    """
    start = DeadlineChoice(made)
    start.insert(np.flatnonzero(relaxed.share >= _WHOLE))
    price = made.row @ relaxed.price
    density = made.gain / np.maximum(price, 1e-9)
    best = None
    for order in (
        np.lexsort((relaxed.regret, -relaxed.share)),
        np.argsort(-density, kind="stable"),
    ):
        choice = start.copy()
        choice.insert(order)
        swap(choice, relaxed, out_of_time)
        if best is None or choice.gain > best.gain:
            best = choice
        if out_of_time() or len(made.jobs) + best.gain > relaxed.bound - 1:
            break
    assert best is not None
    return best


def swap(choice: DeadlineChoice, relaxed: Relaxed, out_of_time: Callable[[], bool]) -> None:
    """While one job gains more than others must lose for it, the cheapest such losers give way."""
    for _ in range(MOST_PASSES):
        gain = choice.gain
        _swap_pass(choice, relaxed, out_of_time)
        if choice.gain <= gain or out_of_time():
            return


def _swap_pass(choice: DeadlineChoice, relaxed: Relaxed, out_of_time: Callable[[], bool]) -> None:
    """One pass of swaps over the columns that would gain, then insertion of all columns."""
    made = choice.made
    near = max(_NEAR, _NEAR_SHARE * (relaxed.bound - len(made.jobs) - choice.gain))
    losers, columns, losses, freed = _concessions(choice, relaxed, near)
    touched = np.zeros(len(made.jobs), dtype=bool)
    for column in _wishes(choice, relaxed, near):
        job = int(made.job[column])
        wish = float(made.gain[column]) - choice.gain_of(job)
        if wish <= 0 or choice.take(column):
            touched[job] = True
            continue
        given = _cheapest(
            made.row[column] - choice._demand_of(job) - choice.left,
            wish,
            losses,
            freed,
            touched[losers] | (losers == job),
            losers,
        )
        for number in given:
            choice.set(int(losers[number]), columns[number])
            touched[losers[number]] = True
        if given:
            taken = choice.take(column)
            assert taken, "what was set free suffices"
            touched[job] = True
        if out_of_time():
            return
    choice.insert(np.argsort(-made.gain, kind="stable"))


def _cheapest(
    lacking: Ints, wish: float, losses: Floats, freed: Ints, barred: Mask, losers: Ints
) -> list[int]:
    """Up to three concessions that free the lack and together cost less than `wish`; empty: there
    are none.

    Each one has the least cost for its share of the lack.
    """
    given: list[int] = []
    while len(given) < MOST_LOSERS:
        rows = np.flatnonzero(lacking > 0)
        if not len(rows):
            return given
        need = lacking[rows]
        covered = (np.minimum(freed[:, rows], need) / need).sum(axis=1)
        able = ~barred & (losses < wish) & (covered > 0)
        if not able.any():
            return []
        ratio = np.where(able, losses / np.maximum(covered, 1e-9), np.inf)
        number = int(ratio.argmin())
        given.append(number)
        wish -= float(losses[number])
        lacking = lacking - freed[number]
        barred = barred | (losers == losers[number])
    return given if (lacking <= 0).all() else []


def _wishes(choice: DeadlineChoice, relaxed: Relaxed, near: float) -> list[int]:
    """Columns better than those of their jobs, the largest gain first.

    The distance of a choice from the bound is the sum of its regrets and of its unused room at its
    price. So a column with a large regret is hardly part of a better choice.
    """
    made = choice.made
    have = np.where(choice.picks >= 0, made.gain[choice.picks], 0.0)[made.job]
    more = made.gain - have
    return [
        int(at)
        for at in np.argsort(-more, kind="stable")
        if more[at] > 0 and relaxed.regret[at] < near
    ]


def _concessions(
    choice: DeadlineChoice, relaxed: Relaxed | None = None, near: float = inf
) -> tuple[Ints, list[int], Floats, Ints]:
    """The concessions that jobs could make: job, new column (-1: none), loss, and freed GPUs by
    prefix.
    """
    made, losers, columns, losses, held, kept = choice.made, [], [], [], [], []
    for job, pick in enumerate(choice.picks.tolist()):
        if pick < 0:
            continue
        lower = [column for column in made.columns[job] if made.gain[column] < made.gain[pick]]
        for column in lower if job in made.must else [*lower, -1]:
            if relaxed is not None:
                regret = relaxed.regret[column] if column >= 0 else relaxed.out[job]
                if regret - relaxed.regret[pick] > near:
                    continue
            losers.append(job)
            columns.append(column)
            losses.append(made.gain[pick] - (made.gain[column] if column >= 0 else 0.0))
            held.append(pick)
            kept.append(column)
    freed = made.row[held] if held else np.zeros((0, len(made.room)), dtype=np.int64)
    lower_rows = np.array(kept, dtype=np.int64)
    if len(lower_rows):
        freed = freed - np.where((lower_rows >= 0)[:, None], made.row[lower_rows], 0)
    return np.array(losers, dtype=np.int64), columns, np.array(losses, dtype=np.float64), freed
