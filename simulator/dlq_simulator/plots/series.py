"""The numbers behind the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from dlq_simulator.metrics import Number, ReplayOutcome

MOST_SPANS = 20_000  # a Gantt chart of more is one grey block


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


def busy_shares(
    outcomes: Sequence[ReplayOutcome], gpus: int, begin_s: Number, end_s: Number, parts: int
) -> list[float]:
    """The mean share of GPUs that were held in each of so many equal parts of a time span."""
    part_s = (end_s - begin_s) / parts or 1.0
    held = [0.0] * parts
    series = busy_gpus(outcomes)
    places = [(at_s - begin_s) / part_s for at_s in series.x]
    for (at, last), busy in zip(pairwise(places), series.y, strict=False):
        while at < last:
            place = min(parts - 1, int(at))
            until = last if place == parts - 1 else min(last, place + 1.0)
            held[place] += (until - at) * busy
            at = until
    return [one / gpus for one in held]


def cut_note(policy: str, outcomes: Sequence[ReplayOutcome]) -> str:
    """That the Gantt chart of a policy is cut; empty: it is whole."""
    spans = sum(len(outcome.spans) for outcome in outcomes)
    if spans <= MOST_SPANS:
        return ""
    return f"gantt.{policy}.svg shows the first {MOST_SPANS:,} of {spans:,} attempts"


def gantt(outcomes: Sequence[ReplayOutcome], gpus: int, most: int | None = None) -> list[Bar]:
    """The first `most` attempts (None: MOST_SPANS) in lanes, the lowest free ones first; an attempt
    that is split keeps its parts apart.

    Lanes are for the eye: they do not show the real GPUs of an attempt.
    """
    spans = sorted(
        (begin_s, end_s, number, gpus)
        for number, outcome in enumerate(outcomes)
        for begin_s, end_s, gpus in outcome.spans
        if end_s > begin_s
    )[: MOST_SPANS if most is None else most]
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
