"""What a figure was measured under, printed beside it: the machine, its load and its disk."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path


def print_conditions(directory: Path | None = None) -> None:
    """One line about the machine, one about how often its disk syncs right now."""
    load = os.getloadavg()[0]
    print(
        f"conditions: {platform.machine()}, {os.cpu_count()} cores, load {load:.2f}, "
        f"kernel {platform.release()}, Python {platform.python_version()}"
    )
    rate = fsyncs_per_s(directory)
    print(f"conditions: {rate:.0f} appends of 512 B with fdatasync a second, one after another")


def fsyncs_per_s(directory: Path | None = None, seconds: float = 1.0) -> float:
    """Appends of 512 bytes, each followed by fdatasync, a second."""
    with tempfile.TemporaryFile(dir=directory) as file:
        count, start_s = 0, time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            file.write(b"x" * 512)
            file.flush()
            os.fdatasync(file.fileno())
            count += 1
        return count / (time.perf_counter() - start_s)


def percentile(values: list[float], share: float) -> float:
    """Linear interpolation between the closest ranks."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
