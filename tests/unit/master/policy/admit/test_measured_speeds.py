"""How fast GPU types have proven to be, beside what was declared."""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.trials import Profiling
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.policy.admit.measured_speeds import measured_speeds, shown
from support.builders import a_job

H100, T4, A100 = "h100-80gb", "t4-16gb", "a100-40gb"


def known(*runs: tuple[str, str, float], times: int = 5) -> Profiling:
    """So many runs of each family on each type, of so many seconds."""
    made = Profiling(30.0)
    for family, gpu_type, run_s in runs:
        for _ in range(times):
            made.learn(a_job(1, family=family, gpu_type_ran=gpu_type, worked_s=run_s))
    return made


def test_a_family_that_ran_on_both_types_tells_the_ratio() -> None:
    found = measured_speeds(known(("f", H100, 100.0), ("f", T4, 400.0)), ALL_ALIKE, H100)
    assert found == {T4: 0.25}


def test_the_median_of_the_families_counts() -> None:
    runs = [(f"f{n}", kind, run_s) for n in range(3) for kind, run_s in ((H100, 100.0),)]
    runs += [("f0", T4, 200.0), ("f1", T4, 400.0), ("f2", T4, 500.0)]
    assert measured_speeds(known(*runs), ALL_ALIKE, H100) == {T4: 0.25}


def test_the_usual_type_has_its_own_declared_speed() -> None:
    runs = known(("f", H100, 100.0), ("f", T4, 400.0))
    assert measured_speeds(runs, TypeSpeeds({"h100": 2.0}), H100) == {T4: 0.5}


@pytest.mark.parametrize(
    "runs",
    [
        [("f", H100, 100.0), ("g", T4, 400.0)],  # no family ran on both
        [("f", A100, 100.0), ("f", T4, 400.0)],  # nor on the usual one
    ],
)
def test_without_a_family_on_both_nothing_is_told(runs: list[tuple[str, str, float]]) -> None:
    assert measured_speeds(known(*runs), ALL_ALIKE, H100) == {}


def test_a_few_runs_tell_nothing() -> None:
    runs = known(("f", H100, 100.0), ("f", T4, 400.0), times=4)
    assert measured_speeds(runs, ALL_ALIKE, H100) == {}


def test_people_see_three_digits() -> None:
    assert shown(known(("f", H100, 100.0), ("f", T4, 300.0)), ALL_ALIKE, H100) == {T4: 0.333}
