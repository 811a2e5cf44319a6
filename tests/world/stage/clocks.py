"""The clocks of hosts: each runs a little too fast or too slow, and somebody may set its wall."""

from __future__ import annotations

from world.stage.virtual_loop import VirtualLoop

EPOCH_S = 1_800_000_000.0


class HostClock:
    """`drift`: how many seconds it gains in a second. `wall_off_s`: how wrong its wall clock is."""

    def __init__(self, loop: VirtualLoop, *, boot_s: float, drift: float, off_s: float) -> None:
        self._loop = loop
        self._rate = 1.0 + drift
        self._booted_s = loop.time() - boot_s
        self.wall_off_s = off_s
        self.boot = 1

    def boottime_s(self) -> float:
        """CLOCK_BOOTTIME."""
        return (self._loop._now_s - self._booted_s) * self._rate  # asked most of all

    def instant_of(self, boottime_s: float) -> float:
        """The virtual time at which CLOCK_BOOTTIME showed this."""
        return self._booted_s + boottime_s / self._rate

    def now_s(self) -> float:
        """The wall clock, right or wrong."""
        return EPOCH_S + self._loop.time() + self.wall_off_s

    def reboot(self) -> None:
        """The host has been booted anew."""
        self._booted_s = self._loop.time() - 5.0
        self.boot += 1


class ProcessClock:
    """The axis of one process, as `SteadyClock` keeps it: begun by the wall, counted by boottime.

    `floor_s`: the last instant that an earlier process has stored.
    """

    def __init__(self, host: HostClock, floor_s: float = 0.0) -> None:
        self._host = host
        self._begun_s = host.boottime_s()
        self._start_s = max(host.now_s(), floor_s)

    def now_s(self) -> float:
        return self._start_s + (self._host.boottime_s() - self._begun_s)

    def boottime_s(self) -> float:
        return self._host.boottime_s()
