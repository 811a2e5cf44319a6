"""The experiment of the path relinking paper: its rates, its analysis of covariance, its cases."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from benchmarks.reproduce.case import Done
from benchmarks.reproduce.cases import gpu_as_a_service_sizes as cases
from benchmarks.reproduce.runs.ancova import Observation, ancova
from benchmarks.reproduce.runs.renting import EXACT, INSTANCES, teacher, unknown
from benchmarks.reproduce.runs.vm_costs import TYPES, azure, cost, loaded
from benchmarks.reproduce.runs.vm_rates import HIGH, LOW, Guessed, instance, submitted

from dlq_simulator.priced.way import Way


def gaps(rate: str) -> list[float]:
    times = [job.submit_s for job in submitted(10, rate, 7)]
    return [then - at for at, then in pairwise(times)]


def test_rates_are_as_dense_as_the_paper_says() -> None:
    base = gaps("exponential")
    assert gaps("high") == pytest.approx([gap / HIGH for gap in base])
    assert gaps("low") == pytest.approx([gap * 4 / HIGH for gap in base])
    mixed = gaps("mixed")
    expected = [
        gap / (HIGH if number // 10 % 2 == 0 else LOW) for number, gap in enumerate(base, start=1)
    ]
    assert mixed == pytest.approx(expected)


def test_only_the_gaps_differ() -> None:
    pairs = zip(submitted(5, "exponential", 3), submitted(5, "low", 3), strict=True)
    for one, other in pairs:
        assert one.times_s == other.times_s
        assert one.due_s - one.submit_s == pytest.approx(other.due_s - other.submit_s)


def test_a_guess_is_off_by_its_factor() -> None:
    there = instance(list(submitted(1, "high", 3)), 1, TYPES)
    told = Guessed(there, [1.1] * 10).told(4, Way())
    assert told == pytest.approx(there.jobs[4].time_s * 1.1)


@pytest.mark.parametrize("method", ["gpuaas-edf", "gpuaas-dp/fast-b", "gpuaas-path-relinking"])
def test_a_cost_is_the_same_each_time(method: str) -> None:
    words = {"rate": "high", "nodes": 2, "seed": 3, "iterations": 3, "jobs": 6}
    assert cost(method, **words) == cost(method, **words) > 0  # type: ignore[arg-type]


def test_more_nodes_never_make_a_job_of_edf_late_that_was_not() -> None:
    one, two = (cost("gpuaas-edf", "high", 2, 5, 1, times=times) for times in (1, 8))
    assert two < one


def test_the_cloud_differs_from_the_prediction_only_by_its_overheads() -> None:
    assert azure(9201, 0.0, 0.0, 0.0) == azure(9201, 0.0, 0.0, 0.0)
    assert azure(9201, 0.0, 0.0, 0.0) != azure(9201, 120.0, 60.0, 0.11)


def test_reductions_are_equation_3() -> None:
    words = {"rate": "high", "nodes": 5, "seed": 1}
    done = [
        Done({"method": cases.RELINKING, **words}, 20.0),
        Done({"method": "gpuaas-edf", **words}, 80.0),
    ]
    assert cases._reductions(done).rows == {
        "gpuaas-edf": {"high": 75.0, "exponential": None, "mixed": None, "low": None}
    }


def observed(step: float, slope: float = 0.0, seed: int = 1) -> list[Observation]:
    draw = Random(seed)
    return [
        Observation(name, size, 2.0 * size + place * (step + slope * size) + draw.gauss(0.0, 0.1))
        for place, name in enumerate("abc")
        for size in (1.0, 2.0, 3.0)
        for _ in range(5)
    ]


def test_ancova_sees_a_step_between_groups_and_none_where_there_is_none() -> None:
    with_step, without = ancova(observed(1.0)), ancova(observed(0.0))
    assert with_step.groups.chance < 1e-9 < 0.01 < without.groups.chance
    assert (with_step.groups.between, with_step.groups.within) == (2, 41)
    assert (with_step.slopes.between, with_step.slopes.within) == (2, 39)
    assert with_step.slopes.chance > 0.01
    assert with_step.normal > 0.01


def test_ancova_sees_that_slopes_differ() -> None:
    assert ancova(observed(0.0, slope=0.5)).slopes.chance < 1e-6


def test_ancova_of_a_textbook_case() -> None:
    # Two groups with the line y = x and y = x + 1, each point twice, 0.1 apart.
    seen = [
        Observation(name, x, x + level + off)
        for name, level in (("a", 0.0), ("b", 1.0))
        for x in (1.0, 2.0)
        for off in (-0.05, 0.05)
    ]
    told = ancova(seen).groups
    # Between: 8 runs x 0.25; within: 8 x 0.0025 over 5 degrees.
    assert told.value == pytest.approx(8 * 0.25 / (8 * 0.0025 / 5))


@pytest.mark.parametrize("seen", [observed(1.0)[:15], observed(1.0)[::5][:4]])
def test_ancova_needs_groups_and_runs(seen: list[Observation]) -> None:
    with pytest.raises(ValueError, match="two groups"):
        ancova(seen)


def test_a_rate_may_be_a_number() -> None:
    assert gaps("1.8") == pytest.approx(gaps("high"))


def test_jobs_that_gpus_help_less_keep_how_pressing_they_are() -> None:
    pairs = zip(submitted(5, "1.0", 3), submitted(5, "1.0", 3, 0.4, 0.5), strict=True)
    for one, other in pairs:
        assert other.times_s["K80"][0] == pytest.approx(0.5 * one.times_s["K80"][0])
        assert other.times_s["M60"][7] == pytest.approx(0.5 * 8**0.4 * one.times_s["M60"][7])
        slower = other.times_s["M60"][7] / one.times_s["M60"][7]
        left_s = one.due_s - one.submit_s
        assert other.due_s - other.submit_s == pytest.approx(slower * left_s)


def test_jobs_at_once_are_counted_for_each_node() -> None:
    few, many = (loaded("gpuaas-edf", rate, 2, 3, 1, 8) for rate in ("0.1", "3.0"))
    assert 0.5 <= few.at_once < many.at_once <= 10
    assert few.late == 0.0
    assert few.total == pytest.approx(cost("gpuaas-edf", "0.1", 2, 3, 1, times=8))


def test_the_best_program_is_the_least_saving() -> None:
    words = {"rate": "high", "nodes": 5, "seed": 1}
    costs = {cases.RELINKING: 20.0, **dict(zip(cases.DP, (80.0, 40.0, 25.0, 100.0), strict=True))}
    done = [Done({"method": method, **words}, value) for method, value in costs.items()]
    assert cases._reductions(done).rows[cases.BEST_DP]["high"] == pytest.approx(20.0)


def test_the_largest_size_has_as_many_seeds_as_the_paper() -> None:
    counts = Counter(words["nodes"] for words in cases.CASES[0].parts_of(full=True))
    assert counts[10] == counts[50] == 12 * 4 * 10
    assert counts[100] == 12 * 4 * 3


@pytest.mark.parametrize("method", ["dlq", "greedy"])
def test_what_is_learned_costs_more_than_what_is_known(method: str) -> None:
    exact, fitted = (unknown(method, way, "load 1.0", 2, 3) for way in (EXACT, "models"))
    assert exact.error == 0.0 < fitted.error
    assert fitted.total > exact.total


def test_a_history_makes_estimates_better() -> None:
    alone, taught = (unknown("dlq", way, "high-1") for way in ("models", "models, taught"))
    assert taught.error < alone.error
    assert taught.total < alone.total
    assert teacher("high-1") == INSTANCES["high-0"]
