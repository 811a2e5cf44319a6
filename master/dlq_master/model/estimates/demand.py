"""Recent requests of jobs with deadlines: the demand sets the worth of a promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_master.model.estimates.lessons import Newest, newest_of

# Of what came before nothing is remembered: a day holds the ebb and the flood of a cluster's users.
WINDOW_S = 86_400.0
KEPT = 50_000  # at most


class Offer(NamedTuple):
    """A job with deadlines, as it was judged: GPUs, run time in seconds, and best reward."""

    time_s: float
    gpus: int
    run_s: float
    reward: float


class Offers:
    """Those of the last `WINDOW_S`, `KEPT` at most, the oldest first.

    They lie in rows (`model/cluster/learned.py`).
    """

    __slots__ = ("begin_s", "newest")

    def __init__(self) -> None:
        self.newest: Newest[Offer] = Newest(maxlen=KEPT)
        self.begin_s: float | None = None  # of the first that ever came

    def add(self, offer: Offer) -> None:
        """One more; times never fall."""
        if self.begin_s is None:
            self.begin_s = offer.time_s
        self.newest.append(offer)
        self._trim()

    def _trim(self) -> None:
        newest = self.newest
        while newest and newest[0].time_s < newest[-1].time_s - WINDOW_S:
            newest.popleft()

    def recollect(self, begin: int, offers: Sequence[Offer], begin_s: float | None) -> None:
        """Know these, as another master did."""
        self.newest, self.begin_s = newest_of(begin, offers, KEPT), begin_s
        self._trim()

    def span_s(self, now_s: float) -> float:
        """How long they have been coming, `WINDOW_S` at most."""
        return 0.0 if self.begin_s is None else min(WINDOW_S, now_s - self.begin_s)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.newest)
