"""A clock that moves on command only, and ids that are the same for the same seed."""

import random
from collections.abc import Callable

from dlq_common.ids import SECRET_BYTES, positive_decimal, time_ordered_uuid, url_safe


class FakeClock:
    """A clock that stands still until `advance`; for tests and deterministic runs."""

    def __init__(self, now_s: float = 1_800_000_000.0, boottime_s: float = 1_000.0) -> None:
        self._now_s = now_s
        self._boottime_s = boottime_s

    def now_s(self) -> float:
        return self._now_s

    def boottime_s(self) -> float:
        return self._boottime_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both axes; time never goes back (ValueError)."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._now_s += seconds
        self._boottime_s += seconds


class SeededIds:
    """The same ids for the same seed; for tests and deterministic runs, never in a daemon."""

    def __init__(self, seed: int, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self._random = random.Random(seed)
        self._now_s = now_s

    def request_id(self) -> str:
        return time_ordered_uuid(self._now_s(), self._random.randbytes(10))

    def session_id(self) -> str:
        return positive_decimal(self._random.randbytes(8))

    def secret(self) -> str:
        return url_safe(self._random.randbytes(SECRET_BYTES))

    def rng(self) -> random.Random:
        return random.Random(self._random.getrandbits(64))
