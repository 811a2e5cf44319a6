"""The columns and rows of the prefix-capacity model: one column for each job and deadline in its
reach.

    max   N + sum_c (V_c - 1) s_c           s binary,  sum_{c of i} s_c <= 1 for each job i s.t.
    sum_c G_c max(0, RL_c - max(0, DL_c - t)) s_c <= sum_{k <= t} M_k    for t in {distinct DL}

Between two distinct DL the left side is convex in t and, for a constant capacity, the right side
linear. So the rows at the distinct DL imply all others; where the capacity changes every t has its
row. A job that is late is worth 1. Guaranteed jobs have the columns up to their promised step, and
none may stay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """By column: `job` and `step` (numbers), `gain` = V - 1, `row` = what it takes of each prefix.

    `columns[i]` are the columns of job i, best reward first; `room` the capacity of each prefix,
    `prefix` its slots; `must` the numbers of the guaranteed jobs that have a column.
    """

    jobs: Sequence[SloJob]
    job: Ints
    step: Ints
    gain: Floats
    row: Ints
    room: Ints
    prefix: Ints
    columns: list[list[int]]
    must: frozenset[int]

    def taken(self, picks: Ints) -> Ints:
        """W of a choice: `picks` has a column, or -1, for each job."""
        made: Ints = self.row[picks[picks >= 0]].sum(axis=0)
        return made


def options(jobs: Sequence[SloJob], grid: Grid) -> ModelOptions:
    """The model of these jobs. Steps that earn no more than being late are no columns."""
    job: list[int] = []
    step: list[int] = []
    gain: list[float] = []
    wide: list[int] = []
    slots: list[int] = []
    last: list[int] = []
    columns: list[list[int]] = []
    for number, made in enumerate(jobs):
        reach = [at for at in within(made, grid) if made.steps[at].reward > 1]
        reach = [at for at in reach if made.promised is None or at <= made.promised]
        columns.append([*range(len(job), len(job) + len(reach))])
        for at in reach:
            job.append(number)
            step.append(at)
            gain.append(made.steps[at].reward - 1)
            wide.append(width(made, grid))
            slots.append(needed(runtime_s(made), grid.term_s))
            last.append(last_slots(made, at, grid))
    prefixes = _prefixes(last, grid)
    upto = np.array(grid.upto(max(last, default=0)), dtype=np.int64)
    outside = np.maximum(0, np.array(last, dtype=np.int64)[:, None] - prefixes)
    inside = np.maximum(0, np.array(slots, dtype=np.int64)[:, None] - outside)
    return ModelOptions(
        jobs=jobs,
        job=np.array(job, dtype=np.int64),
        step=np.array(step, dtype=np.int64),
        gain=np.array(gain, dtype=np.float64),
        row=np.array(wide, dtype=np.int64)[:, None] * inside,
        room=upto[prefixes],
        prefix=prefixes,
        columns=columns,
        must=frozenset(
            i for i, made in enumerate(jobs) if made.promised is not None and columns[i]
        ),
    )


def _prefixes(last: Sequence[int], grid: Grid) -> Ints:
    if len(set(grid.capacity)) == 1:
        return np.array(sorted(set(last)), dtype=np.int64)
    return np.arange(1, max(last, default=0) + 1, dtype=np.int64)
