"""How long jobs run: from which other jobs it is told, and that it is always longer than they have
run.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.planner.forecasts import PastRuns
from dlq_simulator.twin.runtimes import RunTimeBasis, RunTimes


def a_job(**more: object) -> Job:
    fields = {"user": "ada", "name": "train", "request": Request(gpus=1), "submit_time_s": 0.0}
    return Job(job_id=JobId(1), **fields | more)  # type: ignore[arg-type]  # a builder


def runs(
    *lengths_s: float, user: str = "ada", name: str = "train", **more: float
) -> list[PastRuns]:
    return [PastRuns(user, name, run_s, **more) for run_s in lengths_s]


def test_a_family_comes_before_a_user_and_a_user_before_everybody() -> None:
    others = runs(*[10_000.0] * 10, user="bob", name="x")
    users = runs(*[500.0] * 10, name="y")
    family = runs(100.0, 200.0, 300.0)
    assert RunTimes(others).work_s(a_job(), 0.0, 0.5) == 10_000.0
    assert RunTimes(others + users).work_s(a_job(), 0.0, 0.5) == 500.0
    assert RunTimes(others + users + family).work_s(a_job(), 0.0, 0.5) == 200.0


def test_two_of_a_family_tell_nothing() -> None:
    times = RunTimes(runs(100.0, 200.0))
    assert times.basis(a_job()) is RunTimeBasis.GUESS


def test_a_limit_is_used_as_far_as_others_use_theirs() -> None:
    times = RunTimes(runs(*[50.0] * 10, user="bob", name="x", limit_s=200.0))
    assert times.work_s(a_job(time_limit_s=4_000.0), 0.0, 0.5) == 1_000.0
    assert times.basis(a_job(time_limit_s=4_000.0)) is RunTimeBasis.LIMIT


def test_an_estimate_is_corrected_by_how_good_they_are() -> None:
    times = RunTimes(runs(*[300.0] * 10, user="bob", name="x", estimate_s=100.0))
    assert times.work_s(a_job(duration_estimate_s=1_000.0), 0.0, 0.5) == 3_000.0
    alone = RunTimes([])
    assert alone.work_s(a_job(duration_estimate_s=1_000.0), 0.0, 0.5) == pytest.approx(1_000.0)


def test_who_has_run_longer_than_most_runs_as_long_as_those_who_ran_longer() -> None:
    times = RunTimes(runs(*[100.0] * 90, *[5_000.0] * 10))
    assert times.work_s(a_job(), 0.0, 0.5) == 100.0
    assert times.work_s(a_job(), 150.0, 0.5) == 5_000.0


def test_who_has_run_longer_than_all_will_run_as_long_again() -> None:
    times = RunTimes(runs(100.0, 100.0, 100.0))
    assert times.work_s(a_job(), 400.0, 0.5) == 800.0


@given(
    st.lists(st.floats(1.0, 1e6), max_size=30),
    st.floats(0.0, 1e7),
    st.floats(0.0, 0.999),
    st.one_of(st.none(), st.floats(1.0, 1e6)),
    st.one_of(st.none(), st.floats(1.0, 1e6)),
)
def test_it_is_never_shorter_than_it_has_run_nor_longer_than_its_limit(
    lengths_s: list[float],
    done_s: float,
    quantile: float,
    limit_s: float | None,
    estimate_s: float | None,
) -> None:
    times = RunTimes(runs(*lengths_s, limit_s=2e6, estimate_s=50.0))
    job = a_job(time_limit_s=limit_s, duration_estimate_s=estimate_s)
    work_s = times.work_s(job, done_s, quantile)
    assert work_s >= min(done_s, limit_s if limit_s is not None else done_s)
    assert limit_s is None or work_s <= limit_s


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=30), st.floats(0.0, 1e6))
def test_a_higher_quantile_is_never_shorter(lengths_s: list[float], done_s: float) -> None:
    times = RunTimes(runs(*lengths_s))
    drawn = [times.work_s(a_job(), done_s, quantile / 10) for quantile in range(10)]
    assert drawn == sorted(drawn)
