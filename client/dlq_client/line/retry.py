"""When to ask again after the line was lost, and when to give up."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from dlq_common.clock import Clock

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 2.0


class Patience:
    """One outage: growing pauses with jitter, until `limit_s` have passed since it began.

    `restored` ends the outage; the next failure begins a new one.
    """

    def __init__(
        self,
        limit_s: float,
        clock: Clock,
        rng: random.Random,
        *,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._rng = rng
        # An event that is never set: a sleep that Ctrl-C ends at once.
        self._pause = pause or threading.Event().wait
        self._began_s: float | None = None
        self._delay_s = FIRST_DELAY_S

    def restored(self) -> None:
        """The line works again."""
        self._began_s = None
        self._delay_s = FIRST_DELAY_S

    def wait(self) -> bool:
        """Pause before the next try; False, at once, when the patience is over."""
        now_s = self._clock.boottime_s()
        if self._began_s is None:
            self._began_s = now_s
        # Full jitter: clients that lost the same master must not come back in step.
        delay_s = self._rng.uniform(0, self._delay_s)
        if now_s + delay_s - self._began_s >= self._limit_s:
            return False
        self._delay_s = min(LONGEST_DELAY_S, self._delay_s * 2)
        self._pause(delay_s)
        return True
