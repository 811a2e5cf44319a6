"""A policy on one of Chronus' workloads."""

from __future__ import annotations

from typing import Any

from benchmarks.papers import deadlines


def chronus(
    policy: str, mix: str, density: int, seed: int, jobs: int, noise: float | None = None
) -> dict[str, Any]:
    """A policy on one of Chronus' workloads."""
    return deadlines.run(deadlines.Task(policy, mix, density, seed, jobs, noise))._asdict()
