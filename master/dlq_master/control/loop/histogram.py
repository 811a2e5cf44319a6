"""Histograms of the master's own metrics: each grows by one observation at a time.

They begin at 0 with every start, as Prometheus expects it of counters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]
# Upper ends in seconds; above the last one there is one more bucket without an end.
SPANS_S: Final = (
    1.0, 10.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0,
    259_200.0, 604_800.0,
)  # fmt: skip
SAVES_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
CALLS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0)
SHARES: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Exemplar(NamedTuple):
    """One observation of a bucket: the job, the value and the instant."""

    job_id: int
    value: float
    at_s: float


class Histogram:
    """Observations, counted by the first end that is not below them."""

    __slots__ = ("counts", "ends", "exemplars", "total")

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends = ends
        self.counts = [0] * (len(ends) + 1)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, job_id: int | None = None, at_s: float = 0.0) -> None:
        """One more value, never below 0. With a job it is its bucket's exemplar from here on."""
        value = max(0.0, value)
        place = bisect_left(self.ends, value)
        self.counts[place] += 1
        self.total += value
        if job_id is not None:
            self.exemplars[place] = Exemplar(job_id, value, at_s)


class Histograms:
    """The histograms of one metric, by the values of its labels."""

    __slots__ = ("_ends", "_found", "_names")

    def __init__(self, ends: tuple[float, ...], *names: str) -> None:
        """`names`: of the labels. A metric without labels has its one histogram from the start."""
        self._ends, self._names = ends, names
        self._found: dict[tuple[str, ...], Histogram] = {}
        if not names:
            self.of()

    def of(self, *values: str) -> Histogram:
        """The histogram of these values of the labels."""
        found = self._found.get(values)
        if found is None:
            found = self._found[values] = Histogram(self._ends)
        return found

    def put(self, histogram: Histogram, *values: str) -> None:
        """Show this histogram for these values of the labels."""
        self._found[values] = histogram

    def __iter__(self) -> Iterator[tuple[Labels, Histogram]]:
        for values in sorted(self._found):
            yield tuple(zip(self._names, values, strict=True)), self._found[values]
