"""The parts of promises one by one: admission, the lease selector, and placements at once."""

from __future__ import annotations

import time
from math import inf
from statistics import median

from benchmarks.papers import slo_jobs
from benchmarks.planning import admission, placement, selector
from benchmarks.planning.placement_cases import LARGE_RECIPES, RECIPES, draw
from benchmarks.support.conditions import percentile
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.solver.printed import time_indexed

DAY_S = 86_400.0


def admitted(seed: int, days: float, gpus: int, resume_s: float) -> dict[str, float]:
    """Verdicts and misses of a replay of arrivals, and CPU times in ms."""
    told = admission.replay(gpus, round(days * DAY_S / slo_jobs.TERM_S), seed, resume_s)
    return {
        "guaranteed": told.completed,
        "missed": told.missed,
        "median": median(told.check_ms),
        "p99": percentile(told.check_ms, 0.99),
        "longest": max(told.check_ms),
        "fluid": told.by[VerdictGround.FLUID],
        "plan": told.by[VerdictGround.PLAN],
        "offer": median(told.offer_ms) if told.offer_ms else 0.0,
    }


def selected(gpus: int, count: int, load: float, seed: int) -> dict[str, float | None]:
    """The gap of the plan to the bound in percent, and the CPU time in ms. `stops`: of the sticky
    order, over those of plain least laxity.
    """
    jobs = selector.drawn(gpus, count, load, seed)
    found = selector.run(gpus, jobs)
    stops = selector.stops_of(jobs, selector.grid_of(gpus)) if load >= 1 else None
    return {
        "gap": 100.0 * found.made.gap,
        "cpu_ms": found.cpu_ms,
        "stops": stops[0] / max(1, stops[1]) if stops else None,
    }


def beside_printed(load: float, seed: int, limit_s: float) -> dict[str, float]:
    """Reward and CPU time in seconds: of the selector, and of the printed program in its limit."""
    jobs = selector.drawn(960, 400, load, seed)
    mine = selector.run(960, jobs)
    begun_s = time.process_time()
    other = time_indexed(jobs, selector.grid_of(960), limit_s)
    return {
        "reward": mine.made.objective,
        "cpu_s": mine.cpu_ms / 1e3,
        "printed reward": other.objective,
        "printed bound": other.bound if other.bound < inf else 0.0,
        "printed cpu_s": time.process_time() - begun_s,
        "optimal": float(other.optimal),
    }


def placed(large: bool, at: int, seed: int) -> dict[str, float]:
    """The CPU time of the proven best in ms, and losses to its bound in percent."""
    found = placement.measured(draw((LARGE_RECIPES if large else RECIPES)[at], seed))
    return {
        "cpu_ms": found.took.cpu_ms,
        "proven": float(found.exact.proven),
        "search": found.loss(found.searched),
        "greedy": found.loss(found.greedy),
    }
