"""Recent requests of jobs with deadlines: the demand sets the worth of a promise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

# Of what came before nothing is remembered: a day holds the ebb and the flood of a cluster's users.
WINDOW_S = 86_400.0


class Offer(NamedTuple):
    """A job with deadlines, as it was judged: GPUs, run time in seconds, and best reward."""

    time_s: float
    gpus: int
    run_s: float
    reward: float


class Offers:
    """Those of the last `WINDOW_S`, the oldest first."""

    __slots__ = ("_begin_s", "_offers")

    def __init__(self) -> None:
        self._offers: deque[Offer] = deque()
        self._begin_s: float | None = None  # of the first that ever came

    def add(self, offer: Offer) -> None:
        """One more; times never fall."""
        if self._begin_s is None:
            self._begin_s = offer.time_s
        self._offers.append(offer)
        while self._offers[0].time_s < offer.time_s - WINDOW_S:
            self._offers.popleft()

    def span_s(self, now_s: float) -> float:
        """How long they have been coming, `WINDOW_S` at most."""
        return 0.0 if self._begin_s is None else min(WINDOW_S, now_s - self._begin_s)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self._offers)
