"""Messages between a daemon and systemd; without a service manager nothing is sent.

Three words go up, over the socket that `NOTIFY_SOCKET` names: READY once others may count on us,
STOPPING when we leave, WATCHDOG as long as our loop gets on. The loop itself sends WATCHDOG: a
separate thread would go on sending while the loop hangs. One thing comes down: sockets that systemd
holds open for us, so that callers wait while we restart.

A restart by the watchdog is an ordinary restart. Jobs go on, the master loads its commits, and the
agent adopts its ranks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from dlq_common.clock import Clock

# A quarter of the watchdog's patience: two lost beats, and a slow turn, are no hang.
BEATS = 4.0
FIRST_PASSED_FD = 3


class Service:
    """This process as a service of systemd. Every method may be called without systemd."""

    def __init__(self, clock: Clock, *, address: str = "", watchdog_s: float | None = None) -> None:
        """`address` is a path or an abstract name (`@...`); `watchdog_s` the manager's patience."""
        self._clock = clock
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.beat_s = watchdog_s / BEATS if watchdog_s is not None else None
        """How often `alive` has to be called, in seconds; None without a watchdog."""
        self._beat_due_s = clock.boottime_s()

    @classmethod
    def of(cls, environment: MutableMapping[str, str], clock: Clock) -> Service:
        """The service that these variables describe. They are taken out: no child may speak for
        us.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watched_pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
        ours = watchdog_us.isdecimal() and watched_pid == str(os.getpid())
        return cls(clock, address=address, watchdog_s=int(watchdog_us) / 1e6 if ours else None)

    def ready(self, status: str) -> None:
        """Others may count on us now; `status` is one line for `systemctl status`."""
        self._tell(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """The loop has got on. Call it at every turn: it speaks only when a beat is due."""
        now_s = self._clock.boottime_s()
        if self.beat_s is not None and now_s >= self._beat_due_s and self._tell("WATCHDOG=1"):
            self._beat_due_s = now_s + self.beat_s

    def patience_s(self, wanted_s: float) -> float:
        """How long a loop that wants to wait so long may wait and still be `alive` in time."""
        return wanted_s if self.beat_s is None else min(wanted_s, self.beat_s)

    def stopping(self) -> None:
        """Announce that this process is stopping; the stop may take a moment."""
        self._tell("STOPPING=1")

    def _tell(self, words: str) -> bool:
        """Never waits and never fails: a manager that does not listen is no reason to stop."""
        if not self._address:
            return False
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(words.encode(), socket.MSG_DONTWAIT, self._address)
            return True
        return False


def passed_sockets(environment: Mapping[str, str]) -> dict[str, socket.socket]:
    """The listening sockets that systemd opened for this very process: FileDescriptorName →
    socket.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = int(environment.get("LISTEN_FDS", "0"))
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    names += ["unknown"] * (count - len(names))
    found = {}
    for number, name in zip(range(count), names, strict=False):
        os.set_inheritable(FIRST_PASSED_FD + number, False)
        found[name] = socket.socket(fileno=FIRST_PASSED_FD + number)
    return found
