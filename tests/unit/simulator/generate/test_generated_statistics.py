"""The distributions that the papers' workloads are said to be drawn from.

Seeds are fixed, so that a test always says the same. A sample of n is taken for one of a
distribution if their Kolmogorov distance is below 1.63 / sqrt(n), which a true sample exceeds one
time in a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.generate.gpuaas import GpuAsAService
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace

OWN = Path(__file__).parents[3] / "data" / "traces" / "own_480_job.csv"
HUNDREDTH = 1.63


def off_uniform(values: Sequence[float], low: float, high: float) -> float:
    """The greatest distance to the distribution function of U(low, high), in units of 1 /
    sqrt(n).
    """
    reached = (np.sort(values) - low) / (high - low)
    steps = np.arange(len(values) + 1) / len(values)
    reached = np.clip(reached, 0, 1)
    distance = max(np.max(steps[1:] - reached), np.max(reached - steps[:-1]))
    return float(distance * sqrt(len(values)))


def off_each_other(first: Sequence[float], second: Sequence[float]) -> float:
    """The greatest distance of two samples, in units that make a hundredth of true ones exceed
    1.63.
    """
    at = np.sort([*first, *second])
    shares = [np.searchsorted(np.sort(few), at, "right") / len(few) for few in (first, second)]
    scale = sqrt(len(first) * len(second) / (len(first) + len(second)))
    return float(np.max(np.abs(shares[0] - shares[1])) * scale)


@pytest.fixture(scope="module")
def own() -> Trace:
    return read_trace(str(OWN))


def test_tiresias_run_times_are_uniform_on_a_log_scale_from_2_minutes_to_2_hours() -> None:
    jobs = Tiresias(jobs=2000).workload(Random(1)).jobs
    assert off_uniform([log(job.duration_s) for job in jobs], log(120), log(7200)) < HUNDREDTH


def test_gpuaas_due_dates_are_uniform_between_1_and_3_shortest_run_times() -> None:
    jobs = GpuAsAService(nodes=100).workload(Random(1)).jobs
    factors = [(job.due_s or 0) / job.duration_s for job in jobs]
    assert off_uniform(factors, 1, 3) < HUNDREDTH
    assert max(factors) > 2.95


def test_gpuaas_weights_are_uniform_between_0_003_and_0_015() -> None:
    jobs = GpuAsAService(nodes=100).workload(Random(1)).jobs
    weights = [job.weight or 0 for job in jobs]
    assert off_uniform(weights, 0.003, 0.015) < HUNDREDTH
    assert max(weights) > 0.0149


def test_chronus_deadlines_are_spread_evenly_over_their_range(own: Trace) -> None:
    jobs = Chronus(mix=MIXES["slo"]).workload(Random(1), own).jobs
    assert off_uniform([(job.deadline_s or 0) / job.duration_s for job in jobs], 1.2, 2) < HUNDREDTH


@pytest.mark.parametrize("density", [160, 300])
def test_chronus_copies_arrive_as_the_jobs_of_the_trace_do(density: int, own: Trace) -> None:
    """Each when a job drawn by chance does, which is not the one that it copies."""
    jobs = Chronus(density=density).workload(Random(1), own).jobs
    copies = [job for job in jobs if "+" in job.job_id]
    submits = {job.job_id: job.submit_time_s for job in own.jobs}
    assert len(copies) == 480 * (density - 100) // 100
    assert off_each_other([job.submit_time_s for job in copies], [*submits.values()]) < HUNDREDTH
    moved = sum(job.submit_time_s != submits[job.job_id.partition("+")[0]] for job in copies)
    assert moved > 0.9 * len(copies)
