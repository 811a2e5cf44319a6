"""A row of Aryl's tables on one workload."""

from __future__ import annotations

from benchmarks.papers.aryl_tables import METHODS, mean, replayed


def aryl(method: str, seed: int, jobs: int) -> dict[str, float]:
    """A row of Aryl's tables on one workload."""
    found = [replayed(METHODS[method], seed, jobs)]
    names = ("avg_jct_s", "avg_queue_s", "reclaim_preemption_ratio", "reclaim_collateral_damage")
    return {name: mean(found, name) for name in names}
