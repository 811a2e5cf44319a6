"""Iterations as instants: how long they take, and when in them bytes are sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.requests import Requests

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
