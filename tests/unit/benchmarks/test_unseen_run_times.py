"""`profiler.unseen_run_times`: a job is told by what had ended before it, and by nothing else."""

from __future__ import annotations

from math import exp, isnan

import pytest
from benchmarks.profiler.unseen_run_times import GUESS_S, Past, told


def likely_s(jobs: list[Past]) -> list[float]:
    return [exp(one.like_it) for one in told(jobs)]


def test_before_anything_has_ended_everybody_is_told_the_same() -> None:
    jobs = [Past(float(at), "a", 1, 1000.0) for at in range(10)]
    assert likely_s(jobs) == pytest.approx([GUESS_S] * 10)


def test_the_median_of_its_family_comes_before_that_of_its_cluster_and_of_all() -> None:
    jobs = [Past(float(at), "a", 1, 100.0) for at in range(5)]
    jobs += [Past(5.0 + at, "a", 8, 500.0) for at in range(5)]
    asked = [Past(1000.0, "a", 1, 1.0), Past(1000.0, "a", 8, 1.0), Past(1000.0, "b", 8, 1.0)]
    assert likely_s(jobs + asked)[-3:] == pytest.approx([100.0, 500.0, 500.0])
    unknown = [Past(1000.0, "b", 4, 1.0)]
    assert likely_s(jobs + unknown)[-1] == pytest.approx((100.0 * 500.0) ** 0.5)


def test_a_run_counts_from_its_end_on() -> None:
    jobs = [Past(float(at), "a", 1, 100.0) for at in range(5)]
    early, late = Past(103.5, "a", 1, 1.0), Past(104.0, "a", 1, 1.0)
    assert likely_s([*jobs, early])[-1] == pytest.approx(GUESS_S)
    assert likely_s([*jobs, late])[-1] == pytest.approx(100.0)
    assert isnan(told([*jobs, early])[-1].numbers[3])
