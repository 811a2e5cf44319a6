"""Margins by conformal prediction: the share of the next errors that they cover, and how promises
that were kept or not change that.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from dlq_master.model.jobs.job import JobState
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.model.jobs.trials import (
    ERRING_KEPT,
    ERRORS_KEPT,
    OUTCOMES_KEPT,
    Profiling,
)
from dlq_master.policy.promise.capacity.margins import (
    DECLARED,
    FEWEST,
    LOOSEST,
    MEASURED,
    RunErrors,
    coverage,
    learned_margin,
)
from dlq_master.policy.promise.capacity.rules import reserved_s
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from support.builders import a_job

NOISES: dict[str, Callable[[Random], float]] = {
    "normal": lambda draw: 1.0 / max(0.1, draw.gauss(1.0, 0.2)),
    "uniform": lambda draw: draw.uniform(0.5, 1.5),
    "two kinds": lambda draw: draw.choice((1.0, 1.0, 1.0, 1.6)),
}


def ratios_up_to(most: float, count: int) -> list[float]:
    return [1.0 + (most - 1.0) * (at + 1) / count for at in range(count)]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("share", [0.9, 0.95])
def test_the_next_error_is_covered_as_often_as_was_asked_for(noise: str, share: float) -> None:
    """Of 1,000 draws; a share of 0.9 has a standard error of one percent."""
    draw, covered = Random(f"margins/{noise}"), 0
    for _ in range(1000):
        *known, last = [NOISES[noise](draw) for _ in range(40)]
        covered += last <= 1.0 + learned_margin(RunErrors(known), 1.0 - (1.0 - share) / LOOSEST)
    assert covered / 1000 >= share - 0.03


def test_the_place_is_that_of_a_finite_sample() -> None:
    """The ceil((n + 1) s)-th of n."""
    errors = RunErrors(ratios_up_to(1.5, 100))
    assert learned_margin(errors, 0.98) == pytest.approx(0.455)  # the 91st
    assert learned_margin(errors, 0.998) == pytest.approx(0.5)  # the 100th


def test_too_few_jobs_are_covered_by_the_worst_of_them() -> None:
    few = [1.0] * (FEWEST - 1)
    assert learned_margin(RunErrors(few)) == DECLARED
    assert learned_margin(RunErrors(few, before=MEASURED)) == MEASURED
    assert learned_margin(RunErrors([*few[1:], 1.8], before=MEASURED)) == pytest.approx(0.8)
    assert learned_margin(RunErrors([0.9] * (FEWEST - 1) + [1.4])) == pytest.approx(0.4)
    assert learned_margin(RunErrors([0.5] * 30)) == 0.0
    assert reserved_s(100.0, learned_margin(RunErrors([9.0] * 30))) == 200.0
    with pytest.raises(ValueError, match="-1 estimates is no sample"):
        learned_margin(RunErrors([-1.0]))


def test_a_family_speaks_for_itself_once_it_has_errors_enough() -> None:
    every = ratios_up_to(1.5, 200)
    assert learned_margin(RunErrors(every, [1.02] * 99), 0.998) == pytest.approx(0.02)
    pooled = learned_margin(RunErrors(every), 0.998)
    assert learned_margin(RunErrors(every, [1.02] * 98), 0.998) == pooled > 0.4


def test_outcomes_move_the_coverage_and_bounds_hold_it() -> None:
    assert coverage([]) == pytest.approx(0.95)
    assert 0.999 < coverage([1.0]) <= 1.0
    assert 0.99 < coverage([1.0, 0.0]) < coverage([1.0])
    assert coverage([0.0] * 100_000) == pytest.approx(1.0 - LOOSEST * 0.01)
    assert coverage([1.0] * 500 + [0.0] * 900) == 1.0
    assert coverage([1.0] * 500 + [0.0] * 1100) < 1.0, "it recovers"


def test_a_share_of_promises_is_kept_although_they_are_no_fair_draw() -> None:
    """Only jobs with an estimate that is far too small are promised anything."""
    draw = Random("unfair")
    known, outcomes = list[float](), list[float]()
    for _ in range(3000):
        ratio = draw.uniform(0.5, 1.5)
        promised = ratio > 1.3
        added = learned_margin(RunErrors(known[-100:], (), outcomes[-OUTCOMES_KEPT:]), 0.9)
        if promised:
            outcomes.append(0.0 if ratio <= 1.0 + added else 1.0)
        known.append(ratio)
    assert sum(outcomes[100:]) / len(outcomes[100:]) <= 0.11


# --- what is recorded -----------------------------------------------------------------------------


def test_an_outcome_counts_if_it_is_kept_or_a_wrong_estimate_broke_it() -> None:
    known = Profiling(0.0)
    job = a_job(1, 8)._replace(
        family="ada/resnet", duration_estimate_s=100.0, steps=strict(200.0), margin=0.2, promised=0
    )

    def ends(run_s: float, end_s: float, **more: object) -> list[float]:
        done = job._replace(worked_s=run_s, end_time_s=job.submit_time_s + end_s)
        known.learn(done._replace(state=JobState.COMPLETED, **more))  # type: ignore[arg-type]  # fields
        return list(known.outcomes)

    assert ends(150.0, 190.0) == [0.0], "it overran, and was in time"
    assert ends(150.0, 210.0) == [0.0, 1.0]
    assert ends(110.0, 210.0) == [0.0, 1.0], "its nodes failed, or its plan"
    assert ends(150.0, 210.0, promised=None) == [0.0, 1.0, 1.0], "withdrawn"
    late = {"steps": soft([(200.0, 100.0), (300.0, 50.0)])}
    assert ends(150.0, 210.0, promised=1, **late) == [0.0, 1.0, 1.0, 0.0]
    assert ends(150.0, 210.0, margin=None) == [0.0, 1.0, 1.0, 0.0], "never promised"
    assert known.errors["ada/resnet"] == (1.5, 1.5, 1.1, 1.5, 1.5, 1.5)


def test_what_is_kept_of_errors_is_bounded() -> None:
    known = Profiling(0.0)
    job = a_job(1, 8)._replace(duration_estimate_s=100.0, worked_s=120.0)
    for at in range(ERRING_KEPT + 50):
        known.learn(job._replace(family=f"f{at}"))
    for _ in range(ERRORS_KEPT + 50):
        known.learn(job._replace(family="last"))
    assert (len(known.errors), len(known.errors["last"])) == (ERRING_KEPT, ERRORS_KEPT)
    assert known.outcomes.maxlen == OUTCOMES_KEPT


@pytest.mark.parametrize("value", ["0.3", "1", "1.5", "most"])
def test_a_share_that_cannot_be_meant_is_refused(value: str) -> None:
    with pytest.raises(PolicyError, match="keep_promises"):
        build("dlq", {"keep_promises": value})
    rules = build("dlq", {"keep_promises": "0.95", "know": "profiled"}).promises
    assert rules is not None
    assert (rules.keep, rules.margin) == (0.95, None)
