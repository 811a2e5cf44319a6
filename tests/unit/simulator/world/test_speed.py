"""How fast a job runs where it was put, and that its finish follows from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.slowdown import SKEW_RHO
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.course import Course
from dlq_simulator.world.speed import Speed

# Measured slowdowns of eleven jobs over a slow link, with the rho that the capture gave for each.
MEASURED = (
    (4.88, 5.33), (3.70, 4.09), (3.09, 3.55), (2.92, 3.46), (2.86, 3.36), (2.21, 2.76),
    (2.32, 2.76), (1.67, 2.05), (1.05, 1.83), (1.19, 1.45), (1.00, 1.38),
)  # fmt: skip
# Skew and rho of AlexNet, VGG16, ResNet50, ResNet152 and Inception3, on P100s with 100 Gbit/s.
SKEWED = ((0.618, 0.250), (0.743, 0.233), (0.092, 0.061), (0.039, 0.060), (0.086, 0.037))


def a_job(gpus: int = 2, duration: float = 100, **more: object) -> TraceJob:
    values = {"job_id": "1", "submit_time_s": 0, "num_gpus": gpus, "duration_s": duration, **more}
    return TraceJob(**values)  # type: ignore[arg-type]  # a builder of keyword arguments


@given(rho=st.floats(1e-6, 1e6), overlap=st.floats(1, 1e3))
def test_a_spread_job_is_slowed_within_the_bounds_of_its_overlap(
    rho: float, overlap: float
) -> None:
    slowed = Speed(overlap=overlap).slowed(a_job(rho=rho))
    assert max(1, rho) * (1 - 1e-12) <= slowed <= (1 + rho) * (1 + 1e-12)


def test_the_bounds_are_no_overlap_and_perfect_overlap() -> None:
    job = a_job(rho=0.5)
    assert Speed(overlap=1).slowed(job) == pytest.approx(1.5)
    assert Speed(overlap=math.inf).slowed(job) == 1.0


def test_the_default_overlap_is_close_to_what_was_measured() -> None:
    errors = [abs(Speed().slowed(a_job(rho=rho)) / slowed - 1) for rho, slowed in MEASURED]
    assert sum(errors) / len(errors) < 0.07


def test_no_other_overlap_fits_what_was_measured_better_than_the_default() -> None:
    def misfit(speed: Speed) -> float:
        return sum((speed.slowed(a_job(rho=rho)) - took) ** 2 for rho, took in MEASURED)

    others = [Speed(overlap=1 + step / 20) for step in range(21)]
    assert misfit(Speed()) <= min(map(misfit, others)) * 1.0001


def test_the_default_rho_per_skew_is_the_least_squares_fit_of_five_models() -> None:
    """Residuals of a least squares fit through 0 are orthogonal to what it is fitted over."""
    told = Speed(overlap=1)  # slowed by 1 + rho
    left = [skew * (told.slowed(a_job(skew=skew)) - 1 - rho) for skew, rho in SKEWED]
    assert sum(left) / sum(skew * rho for skew, rho in SKEWED) == pytest.approx(0, abs=0.005)


def test_a_job_of_which_only_the_skew_is_known_gets_a_rho_from_it() -> None:
    skewed, told = a_job(skew=0.5), a_job(skew=0.5, rho=3.0)
    assert Speed().slowed(skewed) == Speed().slowed(a_job(rho=0.5 * SKEW_RHO))
    assert Speed().slowed(told) == Speed().slowed(a_job(rho=3.0))
    assert Speed().slowed(a_job()) == 1.0


def test_nothing_slows_down_where_it_is_free_or_consolidated() -> None:
    job = a_job(rho=2.0)
    assert Speed(slowdown=False).rate(job, 2, spread=True) == 1
    assert Speed().rate(job, 2) == 1
    assert Speed(overlap=1).rate(job, 2, spread=True, of_gpu=1.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("efficiency", "gpus", "rate"), [(1.0, 8, 4.0), (0.5, 8, 1.0), (0.8, 4, 1.6), (0.8, 1, 0.625)]
)
def test_each_doubling_gains_its_efficiency(efficiency: float, gpus: int, rate: float) -> None:
    assert Speed(efficiency=efficiency).rate(a_job(2), gpus) == pytest.approx(rate)


def test_aryl_loses_a_tenth_for_each_worker_beyond_the_middle() -> None:
    """Section 7.2, in a range of 2 to 6 workers of two GPUs: the middle is 4."""
    job = a_job(4, gpus_per_worker=2, min_workers=2, max_workers=6)
    rates = [Speed(efficiency=None).rate(job, 2 * workers) for workers in range(2, 7)]
    assert rates == pytest.approx([1.0, 1.5, 2.0, 5 * 0.9 / 2, 6 * 0.8 / 2])


def test_a_change_of_speed_times_the_finish_anew() -> None:
    course = Course(a_job(2, 100))
    assert course.start(1, 0, 0, 1, 2) == 100
    assert course.change(40, 2.0, 4) == 40 + 60 / 2
    assert course.change(50, 0.5, 1) == 50 + 40 / 0.5
    outcome = course.outcome(130)
    assert outcome.spans == ((0, 40, 2), (40, 50, 4), (50, 130, 1))
    assert (outcome.queue_s, outcome.overhead_s, outcome.jct_s) == (0, 0, 130)


def test_a_change_while_it_resumes_costs_no_progress() -> None:
    course = Course(a_job(1, 100))
    course.start(1, 0, 30, 1, 1)
    course.stop(40)
    course.leave(50)
    assert course.start(2, 60, 30, 1, 1) == 90 + 60
    assert course.change(70, 0.5, 1) == 90 + 120
    outcome = course.outcome(210)
    assert (outcome.overhead_s, outcome.queue_s) == (10 + 30, 10)


def replayed(
    cluster: str, *words: str, policy: str = "best-effort", **more: object
) -> ReplayOutcome:
    """The second of two jobs: the first leaves one GPU of its node, and another node whole."""
    (chosen,) = read_settings([policy], words)
    row: dict[str, Any] = {"gpus": 2, "duration": 100, "job_id": "x", **more}
    jobs = [a_job(2, 50), a_job(**row)]
    return replay(Trace.of("t", jobs), read_cluster(cluster), chosen).outcomes[-1]


def test_who_is_spread_finishes_later_and_who_is_not_does_not() -> None:
    spread = replayed("2x3", "place=spread", "overlap=1", rho=3.0)
    assert (spread.start_s, spread.finish_s, spread.queue_s, spread.overhead_s) == (0, 400, 0, 0)
    assert replayed("2x3", "place=spread", "overlap=1", "slowdown=free", rho=3.0).finish_s == 100
    assert replayed("2x3", "place=count", "overlap=1", rho=3.0).finish_s == 100
    assert replayed("2x3", "place=consolidate", "overlap=1", rho=3.0).finish_s == 100


def test_a_job_that_needs_two_nodes_is_not_spread_on_two() -> None:
    assert replayed("2x3", "place=spread", gpus=4, rho=3.0).finish_s == 100


def test_a_faster_gpu_type_takes_less_time(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[nodes]]\nname="a"\ncount=1\ngpus=8\ngpu_type="A"\nspeed=2.0\n'
        '[[nodes]]\nname="v"\ncount=1\ngpus=8\ngpu_type="V"\n'
    )
    assert replayed(str(path), gpu_type="A").finish_s == 50
    assert replayed(str(path), gpu_type="V").finish_s == 100


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("slowdown=maybe", "expected charged or free"),
        ("overlap=0.5", "expected 1 (none) or more, or full"),
        ("skew_rho=-1", "expected 0 or more"),
        ("scaling=0.4", "expected linear, aryl, or the efficiency"),
        ("scaling=sub", "expected linear, aryl, or the efficiency"),
    ],
)
def test_a_wrong_setting_is_refused(word: str, why: str) -> None:
    with pytest.raises(Exception, match="cannot read --set") as caught:
        read_settings(["fifo"], [word])
    assert why in str(caught.value)
