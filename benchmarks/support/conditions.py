"""The conditions of a measured figure, printed beside it: the machine, its load, its disk and the
versions.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import ROOT

# Packages that the figures depend on besides Python; missing ones are left out.
PACKAGES = ("dlq", "grpcio", "protobuf", "numpy", "scipy")


def conditions() -> dict[str, Any]:
    """Cores, load, kernel and versions, as plain values; asking costs next to nothing."""
    return {
        "machine": platform.machine(),
        "core_count": os.cpu_count(),
        "usable_core_count": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": _versions(),
    }


def conditions_line(found: dict[str, Any]) -> str:
    """The conditions for people, on one line."""
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    return (
        f"conditions: {found['machine']}, {found['usable_core_count']} of {found['core_count']} "
        f"cores, load {found['load_1min']:.2f}, kernel {found['kernel']}, "
        f"Python {found['python']}, SQLite {found['sqlite']}, {packages}"
    )


# Files that runs write: the first run of a series does not make the next one's tree dirty.
WRITTEN = (
    "benchmarks/prove/results",
    "docs/reliability.md",
    "docs/gpu-proof.md",
    "docs/internals/race.md",
    "docs/internals/growth.md",
    "docs/internals/*.svg",
)
UNKNOWN_COMMIT = "?"


def commit_name() -> str:
    """The first ten digits of this tree's commit; "-dirty" behind them if tracked files other than
    pages of results were changed since; "?" where git or its history is missing.
    """
    others = [f":(exclude){path}" for path in WRITTEN]
    name = _git("rev-parse", "--short=10", "HEAD")
    if not name:
        return UNKNOWN_COMMIT
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    return f"{name}-dirty" if changed else name


def _git(*words: str) -> str:
    try:
        said = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return said.stdout.strip()


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


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
