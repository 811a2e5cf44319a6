"""Run times that nobody tells: from iterations, from the family, and from what the job itself
shows.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from dlq_master.policy.priced.learning import (
    JobFeatures,
    JobShape,
    LearnedTimes,
    MeasuredRun,
    refined,
)
from dlq_master.policy.priced.performance import Performance

HOUR = 3600.0
SPEEDS = (1.0, 1.6)


def learner() -> LearnedTimes:
    return LearnedTimes(SPEEDS, 4)


def models(learned: LearnedTimes) -> dict[str, Performance]:
    """By family."""
    found = learned._models.items()
    return {group.family or "": model for group, (_, model) in found if model is not None}


def run_s(work_s: float, gpus: int, speed: float) -> float:
    """The law behind these jobs: a third of the work does not get faster with GPUs."""
    return work_s * (2 / gpus + 1) / 3 / speed


def test_who_says_how_many_iterations_is_foretold_on_shapes_that_it_never_saw() -> None:
    draw, learned = random.Random(1), learner()
    for number in range(40):
        iterations, gpus, speed = (
            draw.randrange(10**3, 10**5),
            draw.choice((1, 2, 4)),
            draw.choice(SPEEDS),
        )
        took = MeasuredRun(gpus, speed, run_s(0.5 * iterations, gpus, speed))
        learned.add(JobFeatures("vgg", iterations), [took], f"j{number}")
    found = learned.times(JobFeatures("vgg", 20_000))
    wanted = [[run_s(10_000, g, v) for g in range(1, 5)] for v in SPEEDS]
    assert found == pytest.approx(np.array(wanted), rel=0.03)
    assert models(learned)["vgg"].error < 0.03


def test_that_long_jobs_had_more_gpus_does_not_teach_that_gpus_slow_jobs_down() -> None:
    """Nothing is known of a job but its family, and whoever was long was given more."""
    learned = learner()
    for number in range(20):
        gpus = 1 + number % 4
        work_s = HOUR * 10.0**gpus
        learned.add(
            JobFeatures("vgg"), [MeasuredRun(gpus, 1.0, run_s(work_s, gpus, 1.0))], f"j{number}"
        )
    for row in learned.times(JobFeatures("vgg")):
        assert list(row) == sorted(row, reverse=True)


def test_jobs_that_were_seen_on_several_shapes_teach_how_gpus_help() -> None:
    learned = learner()
    for number in range(10):
        work_s = HOUR * (1 + number)
        took = [MeasuredRun(g, v, run_s(work_s, g, v)) for g in (1, 4) for v in SPEEDS]
        learned.add(JobFeatures("vgg"), took, f"j{number}")
    found = learned.times(JobFeatures("vgg"))
    assert found[0, 0] / found[0, 3] == pytest.approx(2.0, rel=0.02), "not 4 ** 0.85, the usual"
    assert found[0, 0] / found[1, 0] == pytest.approx(1.6, rel=0.02)
    assert run_s(5 * HOUR, 1, 1.0) <= found[0, 0] <= run_s(6 * HOUR, 1, 1.0), "the median's level"


def test_before_anything_is_known_jobs_take_an_hour_and_the_family_counts_from_the_first() -> None:
    learned = learner()
    assert learned.times(JobFeatures("vgg"))[0, 0] == HOUR
    learned.add(JobFeatures("vgg"), [MeasuredRun(1, 1.0, 9 * HOUR)], "a")
    learned.add(JobFeatures("bert"), [MeasuredRun(1, 1.0, HOUR / 2)], "b")
    assert learned.times(JobFeatures("vgg"))[0, 0] == pytest.approx(9 * HOUR)
    assert learned.times(JobFeatures("bert"))[0, 0] == pytest.approx(HOUR / 2)
    assert HOUR / 2 <= learned.times(JobFeatures("new"))[0, 0] <= 9 * HOUR
    assert models(learned) == {}


def test_a_new_family_is_judged_by_all_of_them() -> None:
    learned = learner()
    for number in range(8):
        iterations = 1000 * (1 + number)
        took = [MeasuredRun(1, 1.0, run_s(float(iterations), 1, 1.0))]
        learned.add(JobFeatures("vgg" if number % 2 else "bert", iterations), took, f"j{number}")
    assert learned.times(JobFeatures("new", 500))[0, 0] == pytest.approx(500, rel=0.05)


def test_models_are_fitted_anew_only_when_half_as_many_runs_more_are_known() -> None:
    learned = learner()
    fits = []
    for number in range(12):
        took = [MeasuredRun(1, 1.0, 100.0 * (1 + number))]
        learned.add(JobFeatures("vgg", 1 + number), took, f"j{number}")
        learned.times(JobFeatures("vgg", 1))
        fits.append(models(learned).get("vgg"))
    assert fits[3] is None
    assert fits[4] is fits[6] is not None
    assert fits[7] is not fits[6], "eight runs"
    assert fits[10] is fits[7]


def test_what_was_measured_of_a_job_moves_all_of_its_times() -> None:
    times = np.array([[100.0, 50.0, np.inf]])
    assert refined(times, {}) is times
    found = refined(times, {JobShape(0, 1): 400.0, JobShape(0, 2): 50.0})
    assert found.tolist() == [[400.0, 50.0, np.inf]]
    assert refined(times, {JobShape(0, 1): 300.0}).tolist() == [
        pytest.approx([300.0, 150.0, np.inf])
    ]
