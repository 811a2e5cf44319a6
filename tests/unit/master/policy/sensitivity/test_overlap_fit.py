"""The slowdown of a spread job foretold from rho, on the jobs that were measured."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.slowdown import bounds, rho_at, rho_of, slowdown
from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.policy.sensitivity.overlap_fit import LEAST_RUNS, fit
from dlq_master.policy.sensitivity.packing import PackingRule
from support.builders import World

# Two processes with DDP and gloo, unshaped and at 800 Mbit/s: model bytes per iteration (MB),
# seconds of an iteration on the fast link, measured slowdown, and the bounds as they were written
# down.
MEASURED = {
    "AlexNet (2)": (244.4, 0.501, 5.33, 4.88, 5.88),
    "ResNet50 (2)": (102.2, 0.277, 4.09, 3.70, 4.70),
    "AlexNet (64)": (244.4, 0.791, 3.55, 3.09, 4.09),
    "GoogleNet (2)": (26.5, 0.091, 3.46, 2.92, 3.92),
    "VGG16 s16 (2)": (34.6, 0.121, 3.36, 2.86, 3.86),
    "GPT (2)": (141.3, 0.639, 2.76, 2.21, 3.21),
    "Inception3 (8)": (95.3, 0.411, 2.76, 2.32, 3.32),
    "ResNet50 (16)": (102.2, 0.614, 2.05, 1.67, 2.67),
    "GoogleNet (16)": (26.5, 0.252, 1.83, 1.05, 2.05),
    "VGG16 s16 (16)": (34.6, 0.290, 1.45, 1.19, 2.19),
    "ResNet50 (32)": (102.2, 1.025, 1.38, 1.00, 2.00),
}
LINK = 800e6 / 8  # bytes a second
RHOS = st.floats(0.0, 50.0)
OVERLAPS = st.floats(1.0, 16.0) | st.just(inf)


def rho_named(name: str) -> float:
    size_mb, compute_s, _, _, _ = MEASURED[name]
    return rho_of(size_mb * 1e6, compute_s, LINK)


def runs(factor: float = 1.0) -> list[TimedRun]:
    return [
        TimedRun(TrafficProfile(rho=rho_named(name)), True, took * factor)
        for name, (_, _, took, _, _) in MEASURED.items()
    ]


@pytest.mark.parametrize("name", MEASURED)
def test_every_measured_job_lies_within_its_bounds(name: str) -> None:
    _, _, took, low, high = MEASURED[name]
    found = bounds(rho_named(name))
    assert found.low == pytest.approx(low, abs=0.011)
    assert found.high == pytest.approx(high, abs=0.011)
    assert found.low <= took <= found.high


def test_the_fitted_overlap_and_its_errors_are_those_of_the_study() -> None:
    found = fit(runs())
    assert found is not None
    assert found.overlap == pytest.approx(1.45, abs=0.02)
    seen = [
        abs(slowdown(rho_named(name), found.overlap) / row[2] - 1) for name, row in MEASURED.items()
    ]
    assert sum(seen) / len(seen) == pytest.approx(0.063, abs=0.003)
    assert found.error == pytest.approx(0.069, abs=0.002)  # each job left out in turn
    assert found.confident


@given(rho=RHOS, overlap=OVERLAPS)
def test_a_prediction_lies_between_perfect_overlap_and_none(rho: float, overlap: float) -> None:
    low, high = bounds(rho)
    assert low - 1e-9 <= slowdown(rho, overlap) <= high + 1e-9
    assert slowdown(rho, 1.0) == pytest.approx(high)
    assert slowdown(rho, inf) == low


@given(tolerated=st.floats(1.01, 9.0), overlap=st.floats(1.0, 16.0))
def test_the_limit_of_rho_is_where_the_slowdown_is_just_tolerated(
    tolerated: float, overlap: float
) -> None:
    assert slowdown(rho_at(tolerated, overlap), overlap) == pytest.approx(tolerated)


@given(
    overlap=st.floats(1.0, 8.0),
    rhos=st.lists(st.floats(0.3, 3.0), min_size=LEAST_RUNS, max_size=20),
)
def test_an_overlap_that_made_the_times_is_found_again(overlap: float, rhos: list[float]) -> None:
    found = fit([TimedRun(TrafficProfile(rho=rho), True, slowdown(rho, overlap)) for rho in rhos])
    assert found is not None
    for rho in rhos:
        assert slowdown(rho, found.overlap) == pytest.approx(slowdown(rho, overlap), rel=5e-3)


def test_the_misfit_of_the_found_overlap_is_the_least_of_a_fine_grid() -> None:
    def misfit(overlap: float) -> float:
        return sum(
            (slowdown(run.profile.rho or 0.0, overlap) - run.slowdown) ** 2 for run in runs()
        )

    found = fit(runs())
    assert found is not None
    assert misfit(found.overlap) <= min(misfit(1 + step / 500) for step in range(2000)) * (1 + 1e-4)


def test_nothing_is_believed_that_was_not_measured_often_and_foretold_well() -> None:
    assert fit([]) is None
    assert (
        fit(
            [
                TimedRun(TrafficProfile(rho=1.0), False, 1.0),
                TimedRun(TrafficProfile(skew=0.5), True, 2.0),
            ]
        )
        is None
    )
    few = fit(runs()[: LEAST_RUNS - 1])
    assert few is not None
    assert not few.confident
    wild = fit(
        [
            run._replace(slowdown=run.slowdown * (3 if n % 2 else 0.4))
            for n, run in enumerate(runs())
        ]
    )
    assert wild is not None
    assert not wild.confident


def test_once_it_is_believed_rho_alone_decides() -> None:
    world = World()
    rule = PackingRule(0.378, predicts=True, tolerated=1.5)
    before = rule(world.cluster)
    assert (before.rho_low, before.rho_high) == (0.5, 1.5)
    assert rule(world.cluster) is before
    for run in runs():
        world.cluster.slowdowns.add(run)
    after = rule(world.cluster)
    assert after.rho_low == after.rho_high == pytest.approx(rho_at(1.5, 1.45), rel=0.05)
    assert not after.together(TrafficProfile(skew=0.742, rho=after.rho_high * 0.99))
    assert after.together(TrafficProfile(skew=0.092, rho=after.rho_high * 1.01))
    assert after.together(TrafficProfile(skew=0.742))


def test_rho_orders_the_measured_jobs_as_they_suffered_and_the_skew_does_not() -> None:
    rhos = [rho_named(name) for name in sorted(MEASURED, key=lambda name: MEASURED[name][2])]
    assert sum(left > right for left, right in pairwise(rhos)) <= 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((1.0, 0.0, 1.0), "compute_s must be a positive number"),
        ((1.0, 1.0, -1.0), "bytes_per_s must be a positive number"),
        ((float("nan"), 1.0, 1.0), "bytes_per_iteration must be 0 or more"),
    ],
)
def test_a_rho_of_nonsense_is_refused(values: tuple[float, float, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rho_of(*values)
