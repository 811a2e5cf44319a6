"""The numbers behind the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from dlq_simulator.metrics import Number, ReplayOutcome


class Series(NamedTuple):
    """A line: as many x as y."""

    x: list[float]
    y: list[float]


class Bar(NamedTuple):
    """One attempt in a Gantt chart: its lanes are GPUs that no other job holds meanwhile."""

    job: int
    lane: int
    gpus: int
    begin_s: Number
    end_s: Number


def cdf(values: Sequence[Number]) -> Series:
    """The share of values at or below each of them."""
    ordered = sorted(float(value) for value in values)
    return Series(ordered, [rank / len(ordered) for rank in range(1, len(ordered) + 1)])


def busy_gpus(outcomes: Sequence[ReplayOutcome]) -> Series:
    """GPUs held over time, as steps: the value holds from its time to the next."""
    changes: dict[Number, int] = {}
    for outcome in outcomes:
        for begin_s, end_s, gpus in outcome.spans:
            changes[begin_s] = changes.get(begin_s, 0) + gpus
            changes[end_s] = changes.get(end_s, 0) - gpus
    times = sorted(changes)
    return Series(
        [float(at) for at in times], list(map(float, accumulate(changes[at] for at in times)))
    )


def gantt(outcomes: Sequence[ReplayOutcome], gpus: int, most: int | None = None) -> list[Bar]:
    """The first `most` attempts (None: all) in lanes, the lowest free ones first; an attempt that
    is split keeps its parts apart.

    Lanes are for the eye: they do not show the real GPUs of an attempt.
    """
    spans = sorted(
        (begin_s, end_s, number, gpus)
        for number, outcome in enumerate(outcomes)
        for begin_s, end_s, gpus in outcome.spans
        if end_s > begin_s
    )[:most]
    free_at: list[Number] = [0] * gpus
    bars: list[Bar] = []
    for begin_s, end_s, number, width in spans:
        lanes = [lane for lane, until in enumerate(free_at) if until <= begin_s][:width]
        for lane in lanes:
            free_at[lane] = end_s
        for first, count in _runs(lanes):
            bars.append(Bar(number, first, count, begin_s, end_s))
    return bars


def _runs(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring lanes together: first lane and how many."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and sum(runs[-1]) == lane:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs
