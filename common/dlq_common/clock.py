"""Time: one steady axis per process.

`now_s` is the instant that the product stores and shows (UTC seconds since the epoch). It is read
from the wall once, at construction, and afterwards only counts CLOCK_BOOTTIME. It never steps when
an operator or NTP sets the clock, and it counts while the host sleeps. Deadlines that guard against
running twice use `boottime_s`, which is comparable between processes of one boot.
"""

from __future__ import annotations

import math
import time
from typing import Protocol


class Clock(Protocol):
    """The clock as an I/O shell sees it; pure code is handed `now_s` instead."""

    def now_s(self) -> float:
        """UTC seconds since the epoch; never decreases within one process."""
        ...

    def boottime_s(self) -> float:
        """Seconds since this host booted, sleep included; shared by all processes of one boot."""
        ...


class SteadyClock:
    """The real clock. A wall clock that is set afterwards is noticed only by the next process."""

    def __init__(self, floor_s: float = 0.0, ceiling_s: float = math.inf) -> None:
        """Start the axis at the wall's time, but never below `floor_s`, and above it not beyond
        `ceiling_s`.

        The floor is the last instant an earlier process stored. A host that boots with a wall clock
        in the past must not write history before its own history. The ceiling follows from the time
        since this host's boot.
        """
        self._boottime_at_start_s = self.boottime_s()
        self._start_s = max(min(time.time(), ceiling_s), floor_s)

    def now_s(self) -> float:
        return self._start_s + (self.boottime_s() - self._boottime_at_start_s)

    def boottime_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def clock_doubt(tls_error: str) -> str:
    """Advice for a handshake that failed because of a certificate's dates; empty for other
    failures.

    Certificates are renewed well within their month of life. A certificate that is out of date
    mostly means a wrong clock.
    """
    if not any(
        words in tls_error
        for words in ("certificate has expired", "not yet valid", "CERTIFICATE_EXPIRED")
    ):
        return ""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return (
        f"the clock of this host says {now}: compare it with the master's (timedatectl); one "
        "of the two is wrong"
    )
