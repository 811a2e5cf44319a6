"""The rules for elastic jobs on free GPUs: one knapsack, some cases of three jobs, one stream."""

from __future__ import annotations

from benchmarks.papers.elastic_cases import knapsacks, streams, threes
from benchmarks.papers.elastic_fill import (
    RULES,
    best_s,
    candidate,
    followed_s,
    replayed_s,
    timed,
)
from dlq_master.policy.size import fill, knapsack, knapsack_exact


def packed(jobs: int, at: int) -> dict[str, float]:
    """The gap of the knapsack by steps to its bound in percent, and CPU times in ms."""
    case = list(knapsacks(jobs))[at]
    made = [candidate(number, job) for number, job in enumerate(case.jobs, start=1)]
    by_steps, steps_ms = timed(knapsack.packed, made, case.left)
    exact, exact_ms = timed(knapsack_exact.packed, made, case.left)
    _, rollout_ms = timed(lambda ones, left: fill.rollout(ones, left, True), made, case.left)
    return {
        "by steps: gap, %": 100.0 * (by_steps.bound - by_steps.value) / by_steps.bound,
        "by steps: CPU, ms": steps_ms,
        "exact: gap, %": 100.0 * (by_steps.bound - exact.value) / by_steps.bound,
        "exact: CPU, ms": exact_ms,
        "rollout: CPU, ms": rollout_ms,
    }


def three_jobs(begin: int, end: int) -> dict[str, list[float]]:
    """The sum of completion times over the optimum, by rule, case by case."""
    cases = list(threes())[begin:end]
    least = [best_s(gpus, jobs, {}) for gpus, jobs in cases]
    return {
        name: [
            followed_s(gpus, jobs, rule) / best
            for (gpus, jobs), best in zip(cases, least, strict=True)
        ]
        for name, rule in RULES.items()
    }


def arrived(load: float, at: int) -> dict[str, float]:
    """The mean completion time in seconds, by rule."""
    stream = list(streams(load))[at]
    return {name: replayed_s(stream, name) for name in RULES}
