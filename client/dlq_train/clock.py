"""The two clocks of a training process; this package may import only the standard library."""

import time

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has no boot time clock


def steady_s() -> float:
    """Seconds on a clock that never steps; only differences mean anything."""
    return time.clock_gettime(_STEADY)


def wall_s() -> float:
    """Seconds since the epoch, for people and for marks on disk; never for measuring."""
    return time.time()
