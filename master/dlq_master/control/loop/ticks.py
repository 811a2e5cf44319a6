"""The metronome: APScheduler puts ticks into the inbox and does nothing else.

It computes its wake-ups from the wall clock, so a clock set back silences it. Nothing that must be
safe hangs on it: the loop waits with a monotonic timeout and ticks itself when the metronome is
late.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from dlq_master.control.stimuli import Stimulus, Tick

# Every period of the master, in seconds.
PERIODS_S: Final[Mapping[str, float]] = {
    "leases": 1.0,  # silence, holds, time limits, boundaries
    "compact": 3600.0,  # forget old request ids
}


def start_metronome(
    tell: Callable[[Stimulus], None], periods_s: Mapping[str, float] = PERIODS_S
) -> AsyncIOScheduler:
    """Tick until `shutdown`. A tick that is late is not dropped, missed ones are given once."""
    logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it would tell of every tick
    metronome = AsyncIOScheduler(
        timezone="UTC",
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    for name, period_s in periods_s.items():
        metronome.add_job(tell, "interval", [Tick(name)], id=name, seconds=period_s)
    metronome.start()
    return metronome


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
