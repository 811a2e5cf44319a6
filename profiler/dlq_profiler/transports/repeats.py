"""How a sequence repeats itself, and the iterations as instants that follow from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.requests import Requests

# One iteration more than two could be chance (facts of warm-up iterations repeat once).
LEAST_REPEATS = 3
# The repetition must explain this share of a whole sequence: a tail of equal sizes repeats itself,
# too.
LEAST_SHARE = 0.5
# A job that does not repeat itself must not cost more than one that does.
MOST_SYMBOLS = 262_144
MOST_PERIOD = 16_384


class Repeat(NamedTuple):
    """`sequence[first:]` repeats `period` elements; the last part may be cut short."""

    period: int
    first: int
    repeats: int  # whole ones


def shortest_repeat(symbols: NDArray[np.generic]) -> Repeat | None:
    """The shortest period that explains at least half of the sequence by three repeats or more.

    None without one. Symbols before `first` are warm-up. Of a very long sequence its end counts.
    """
    backwards = symbols[: -MOST_SYMBOLS - 1 : -1]
    count = len(backwards)
    limit = min(count // LEAST_REPEATS, MOST_PERIOD)
    for period in np.flatnonzero(backwards[1 : limit + 1] == backwards[:1]) + 1:
        if not np.array_equal(backwards[period : 3 * period], backwards[: 2 * period]):
            continue
        differs = backwards[period:] != backwards[:-period]
        where = int(np.argmax(differs))
        explained = (where if differs[where] else len(differs)) + int(period)
        if explained >= LEAST_SHARE * count:
            return Repeat(int(period), len(symbols) - explained, explained // int(period))
    return None


def steady_part(
    sizes: NDArray[np.generic],
    places: NDArray[np.generic],
    starts_ns: NDArray[np.int64],
    ends_ns: NDArray[np.int64],
) -> tuple[Repeat, int] | None:
    """How a sequence of messages repeats itself, and the index at which an iteration begins.

    Places (addresses) tell messages of one size from each other, which else would look like one
    message in many iterations. Two cases differ from that: buffers that are new each time, and
    buffers that are used in turn. There every repetition of the sizes comes after a pause.
    """
    by_size = shortest_repeat(sizes)
    if by_size is None:
        return None
    begin = phase_after_the_longest_pause(starts_ns, ends_ns, by_size)
    if _all_after_a_pause(starts_ns, ends_ns, by_size, begin):
        return by_size, begin
    by_place = shortest_repeat(mixed(sizes, places))
    if by_place is None:
        return None if by_size.period == 1 else (by_size, begin)
    return by_place, phase_after_the_longest_pause(starts_ns, ends_ns, by_place)


def mixed(*columns: NDArray[np.generic]) -> NDArray[np.uint64]:
    """One number for each row, equal for equal rows (and for hardly any others)."""
    found = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            found = (found ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            found ^= found >> np.uint64(32)
    return found


def _all_after_a_pause(
    starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64], repeat: Repeat, begin: int
) -> bool:
    """Whether there is a pause before every repetition that is like the usual one before them."""
    rows = np.arange(max(begin, 1), len(starts_ns), repeat.period)
    pauses = starts_ns[rows] - ends_ns[rows - 1]
    within = np.delete(starts_ns[1:] - ends_ns[:-1], rows - 1)
    rest = float(np.median(within)) if len(within) else 0.0
    return bool(np.percentile(pauses, 10) >= 0.3 * np.percentile(pauses, 90) > 2 * rest)


def phase_after_the_longest_pause(
    starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64], repeat: Repeat
) -> int:
    """The index in the sequence at which iterations begin: after the pause that is usually longest.

    Of a repetition any element could be the first; a training step computes before it sends.
    """
    period, first, repeats = repeat
    if period == 1:
        return first
    rows = first + np.arange(repeats)[:, None] * period + np.arange(period)
    before = np.maximum(rows - 1, 0)
    pauses = starts_ns[rows] - ends_ns[before]
    # Before the very first element there may be nothing, or the warm-up.
    usual = np.median(pauses[1:] if repeats > 1 else pauses, axis=0)
    return first + int(np.argmax(usual))


PAUSE = 5  # an iteration that took this many times the usual time was more than an iteration
PHASES = 32  # parts of an iteration for which bytes are given


class Iterations(NamedTuple):
    """The instants at which iterations begin, the last one's end being unknown."""

    starts_ns: NDArray[np.int64]

    @property
    def whole(self) -> int:
        """Iterations whose begin and end are both known."""
        return len(self.starts_ns) - 1

    @property
    def period_s(self) -> float:
        """Mean seconds of an iteration; an evaluation or a checkpoint between two is left out."""
        took = np.diff(self.starts_ns)
        return float(took[took <= PAUSE * np.median(took)].mean()) / 1e9

    @property
    def jitter(self) -> float:
        """Spread of the iterations' times: their interquartile range over their median."""
        low, middle, high = np.percentile(np.diff(self.starts_ns), [25, 50, 75])
        return float((high - low) / middle) if middle else 0.0

    def holding(self, requests: Requests) -> Requests:
        """The requests that began in whole iterations."""
        at = requests["start_ns"]
        found: Requests = requests[(at >= self.starts_ns[0]) & (at < self.starts_ns[-1])]
        return found

    def phases(self, requests: Requests) -> NDArray[np.float64]:
        """Bytes per iteration in each of `PHASES` equal parts of it, by when requests began."""
        inside = self.holding(requests)
        which = np.searchsorted(self.starts_ns, inside["start_ns"], side="right") - 1
        begin, end = self.starts_ns[which], self.starts_ns[which + 1]
        part = (inside["start_ns"] - begin) * PHASES // np.maximum(end - begin, 1)
        sums = np.bincount(part, weights=inside["size"], minlength=PHASES)[:PHASES]
        return sums / max(self.whole, 1)
