"""The metronome puts ticks into the inbox and does nothing else.

Nothing that must be safe hangs on it: the loop waits with a monotonic timeout and ticks itself when
the metronome is late.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from dlq_master.control.stimuli import Stimulus, Tick

# Every period of the master, in seconds.
PERIODS_S: Final[Mapping[str, float]] = {
    "leases": 1.0,  # silence, holds, time limits, boundaries
    "compact": 3600.0,  # forget old request ids
}


class Metronome:
    """Ticks from its making until `stop`. A tick that is late is not dropped, missed ones are given
    once.
    """

    def __init__(self, tell: Callable[[Stimulus], None], periods_s: Mapping[str, float]) -> None:
        self._tell = tell
        self._periods_s = dict(periods_s)
        self._loop = asyncio.get_running_loop()
        self._next: dict[str, asyncio.TimerHandle] = {}
        for name, period_s in self._periods_s.items():
            self._wait(name, self._loop.time() + period_s)

    def stop(self) -> None:
        """No tick comes any more."""
        for handle in self._next.values():
            handle.cancel()

    def _wait(self, name: str, due_s: float) -> None:
        self._next[name] = self._loop.call_at(due_s, self._tick, name, due_s)

    def _tick(self, name: str, due_s: float) -> None:
        period_s = self._periods_s[name]
        missed = (self._loop.time() - due_s) // period_s
        self._wait(name, due_s + (1.0 + missed) * period_s)
        self._tell(Tick(name))


class Watchdog:
    """Says which ticks are overdue by the monotonic clock, and remembers those that came."""

    def __init__(self, now_s: float, periods_s: Mapping[str, float] = PERIODS_S) -> None:
        self._periods_s = dict(periods_s)
        self._due_s = {name: now_s + 2.0 * period for name, period in periods_s.items()}

    def heard(self, name: str, now_s: float) -> None:
        """This tick has come."""
        if name in self._due_s:
            self._due_s[name] = now_s + 2.0 * self._periods_s[name]

    def overdue(self, now_s: float) -> list[str]:
        """Ticks missing for two of their periods; each is counted as heard now."""
        late = [name for name, due_s in self._due_s.items() if now_s >= due_s]
        for name in late:
            self.heard(name, now_s)
        return late

    def wait_s(self, now_s: float) -> float:
        """How long the loop may sleep without missing the next overdue tick."""
        return max(0.0, min(self._due_s.values()) - now_s)
