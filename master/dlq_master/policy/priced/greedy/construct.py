"""Randomised greedy construction (Algorithm 1), with all iterations at once, one row each.

Jobs are taken by falling pressure, some neighbours swapped by chance. Each gets its drawn
configuration on the open node that it leaves with the fewest free GPUs. Without one it gets a new
node of the largest type, else its best shape that still fits. Row 0 is the greedy method and uses
no chance.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Bools, Floats, Ints
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.configurations import (
    RankedConfigurations,
    ranked_configurations,
)
from dlq_master.policy.priced.rules import Rules
from dlq_master.policy.priced.situation import Situation

_NO_ROOM = 1 << 12  # more free GPUs than any node has


def construct(situation: Situation, rules: Rules, draw: np.random.Generator) -> ScheduleRows:
    """`rules.iterations` schedules before postprocessing; row 0 is the greedy one."""
    rows = rules.iterations
    order = queue(situation, rules, rows, draw)
    found = ranked_configurations(situation, in_time=rules.released)
    choice = _choices(found, rules, rows, draw)
    batch = ScheduleRows.empty(situation, rows)
    free = np.zeros(batch.used.shape, dtype=np.int16)
    filling = _Filling(situation, found, rules, draw, batch, free)
    for position in range(order.shape[1]):
        jobs = order[:, position]
        filling.place(jobs, choice[np.arange(rows), jobs])
        if filling.full():
            break
    return batch


def queue(situation: Situation, rules: Rules, rows: int, draw: np.random.Generator) -> Ints:
    """[row, position]: jobs by falling pressure, ties by key; neighbours are swapped except in row
    0.
    """
    pressure = situation.fastest - situation.due
    sorted_: Ints = np.argsort(-pressure, kind="stable")
    order = np.tile(sorted_, (rows, 1))
    if rows == 1:
        return order
    weight = situation.weight
    back = rules.swap if rules.released else -rules.swap
    for place in range(order.shape[1] - 1):
        first, second = order[:, place].copy(), order[:, place + 1].copy()
        chance = np.where(weight[first] > weight[second], 0.5 + back, 0.5 - back)
        swapped = draw.random(rows) < chance
        swapped[0] = False
        order[:, place] = np.where(swapped, second, first)
        order[:, place + 1] = np.where(swapped, first, second)
    return order


def _choices(
    found: RankedConfigurations, rules: Rules, rows: int, draw: np.random.Generator
) -> Ints:
    """[row, job]: the configuration drawn for it; in row 0 the best one."""
    jobs = len(found.count)
    pool = np.maximum(1, np.floor(found.count * rules.alpha + 0.5).astype(np.int64))
    if rules.released:
        place = np.floor(draw.random((rows, jobs)) * pool).astype(np.int64)
    else:
        place = _by_inverse(found, pool, draw.random((rows, jobs)))
    place[0] = 0
    chosen: Ints = found.best[np.arange(jobs), place]
    return chosen


def _by_inverse(found: RankedConfigurations, pool: Ints, share: Floats) -> Ints:
    """Places drawn with chances inverse to the value: $, or seconds where no choice meets the due
    date.
    """
    most = int(pool.max(initial=1))
    odds = np.where(
        np.arange(most) < pool[:, None], 1.0 / np.maximum(found.value[:, :most], 1e-9), 0.0
    )
    upto = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    place = (share[:, :, None] > upto[None]).sum(axis=2)
    drawn: Ints = np.minimum(place, pool - 1)
    return drawn


class _Filling:
    """The nodes of all rows while jobs are put on them. `free[r, n]`: free GPUs."""

    def __init__(
        self,
        situation: Situation,
        found: RankedConfigurations,
        rules: Rules,
        draw: np.random.Generator,
        batch: ScheduleRows,
        free: np.ndarray[tuple[int, ...], np.dtype[np.int16]],
    ) -> None:
        self.most = situation.catalogue.most
        self.found, self.rules, self.draw = found, rules, draw
        self.batch, self.free = batch, free
        self.opened = np.zeros(len(free), dtype=np.int64)
        self.nodes = free.shape[1]

    def full(self) -> bool:
        """Whether no node of any row has free GPUs, and none can be opened."""
        return bool((self.opened == self.nodes).all()) and not self.free.any()

    def place(self, jobs: Ints, choice: Ints) -> None:
        """Put one job of each row, with its drawn configuration."""
        kind, gpus = self.found.kind[choice], self.found.gpus[choice]
        rows = np.arange(len(jobs))
        done = self._best_fit(rows, jobs, kind, gpus)
        rows = rows[~done]
        new = rows[self.opened[rows] < self.nodes]
        if len(new):
            node = self.opened[new]
            self.batch.kind[new, node] = kind[new]
            self.free[new, node] = self.most[kind[new]]
            self.opened[new] += 1
            self._put(new, jobs[new], node, gpus[new])
        rest = rows[~np.isin(rows, new, assume_unique=True)]
        if len(rest):
            self._suboptimal(rest, jobs[rest])

    def _best_fit(self, rows: Ints, jobs: Ints, kind: Ints, gpus: Ints) -> Bools:
        """Put jobs on the open node of the kind with the fewest free GPUs; False where
        none fits.
        """
        free = self.free[rows]
        fits = (self.batch.kind[rows] == kind[:, None]) & (free >= gpus[:, None])
        left = np.where(fits, free, _NO_ROOM)
        node = left.argmin(axis=1)
        self._draw_nodes(rows, fits, left, node)
        done: Bools = left[np.arange(len(rows)), node] < _NO_ROOM
        self._put(rows[done], jobs[done], node[done], gpus[done])
        return done

    def _draw_nodes(self, rows: Ints, fits: Bools, left: Ints, node: Ints) -> None:
        """Replace the best node by one of the best `beta` of them, evenly drawn; never in row 0."""
        pool = np.floor(fits.sum(axis=1) * self.rules.beta + 0.5).astype(np.int64)
        several = np.flatnonzero((pool > 1) & (rows > 0))
        if len(several):
            place = np.floor(self.draw.random(len(several)) * pool[several]).astype(np.int64)
            best = np.argsort(left[several], axis=1, kind="stable")
            node[several] = best[np.arange(len(several)), place]

    def _suboptimal(self, rows: Ints, jobs: Ints) -> None:
        """Put jobs where no node can be opened: the first of their shapes that fits."""
        kinds = self.batch.kind[rows]
        most = np.stack(
            [np.where(kinds == k, self.free[rows], 0).max(axis=1) for k in range(len(self.most))],
            axis=1,
        )
        shapes = self.found.shapes[jobs]
        kind, gpus = self.found.shape_kind[shapes], self.found.shape_gpus[shapes]
        possible = np.isfinite(self.batch.situation.time[jobs[:, None], kind, gpus - 1])
        fits = possible & (np.take_along_axis(most, kind, axis=1) >= gpus)
        first = fits.argmax(axis=1)
        some = np.flatnonzero(fits[np.arange(len(rows)), first])
        if len(some):
            chosen = (some, first[some])
            self._best_fit(rows[some], jobs[some], kind[chosen], gpus[chosen])

    def _put(self, rows: Ints, jobs: Ints, node: Ints, gpus: Ints) -> None:
        self.batch.node[rows, jobs] = node
        self.batch.gpus[rows, jobs] = gpus
        self.free[rows, node] -= gpus.astype(np.int16)
        self.batch.used[rows, node] += gpus.astype(np.int16)
