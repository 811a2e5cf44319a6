"""One reclaim of lent servers under every rule."""

from __future__ import annotations

from benchmarks.planning.reclaim import measured
from benchmarks.planning.reclaim_cases import (
    ELASTIC_RECIPES,
    FULL_RECIPES,
    LARGE_RECIPES,
    RECIPES,
    SCATTERED_RECIPES,
    USUAL_RECIPES,
    draw,
)

FAMILIES = {
    "520 servers, 70 and 85 % busy": RECIPES,
    "520 servers, workers scattered": SCATTERED_RECIPES,
    "520 servers, 95 % busy": FULL_RECIPES,
    "520 servers, 20 asked back": USUAL_RECIPES,
    "520 servers, a quarter elastic": ELASTIC_RECIPES,
    "2,000 servers": LARGE_RECIPES,
}


def reclaimed(family: str, at: int, seed: int) -> dict[str, float]:
    """Preempted jobs by rule, the proven bound, GPU-seconds lost, and the CPU time of `exact`."""
    found = measured(draw(FAMILIES[family][at], seed))
    return {
        "exact": found.best.cost,
        "bound": found.best.bound,
        "proven": float(found.best.proven),
        "Algorithm 1": found.heuristic.cost,
        **found.others,
        "lost": found.lost[0],
        "lost, Algorithm 1": found.lost[1],
        "cpu_ms": found.cpu_ms,
    }
