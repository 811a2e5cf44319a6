"""Pollux: the sizes with the greatest harmonic mean of speedups, against every allocation."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_baselines.pollux import REALLOCATION_S, fewest_base, grow
from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import Had
from dlq_master.model.resources import Request
from dlq_master.policy.size.sizing import Candidate
from support.builders import a_waiting_job


def elastic(
    number: int,
    speeds: tuple[float, ...],
    *,
    held: int = 0,
    age_s: float = 0.0,
    attempts: int = 1,
) -> Candidate:
    """On 1 GPU and up, with these speeds."""
    request = Request(gpus=1, sizes=tuple(range(1, len(speeds) + 1)))
    job = a_waiting_job(number, request=request, speeds=speeds, attempts=attempts)
    return Candidate(job, held, age_s=age_s)


def sizes(left: int, *candidates: Candidate) -> list[int]:
    found = grow(candidates, left, False)
    return [found[it.job.job_id] for it in candidates]


def harmonic(candidates: list[Candidate], chosen: tuple[int, ...], left: int) -> float:
    """Of the speedups over an equal share, where nobody is held."""
    share = left / len(candidates) + 1.0
    total = 0.0
    for one, size in zip(candidates, chosen, strict=True):
        fair = max(each for each in one.job.request.sizes if each <= share)
        total += one.job.speed_on(fair) / one.job.speed_on(size)
    return len(candidates) / total


@given(
    st.lists(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4), min_size=1, max_size=3),
    st.integers(0, 8),
)
def test_no_allocation_of_jobs_with_falling_gains_is_better(
    gains: list[list[float]], left: int
) -> None:
    """Each GPU gains less than the one before."""
    jobs = []
    for number, each in enumerate(gains, start=1):
        falling, speeds = sorted(each, reverse=True), [1.0]
        for gain in falling:
            speeds.append(speeds[-1] + gain)
        jobs.append(elastic(number, tuple(speeds)))
    mine = tuple(sizes(left, *jobs))
    assert sum(mine) - len(jobs) <= left
    every = product(*(one.job.request.sizes for one in jobs))
    best = max(harmonic(jobs, it, left) for it in every if sum(it) - len(jobs) <= left)
    assert harmonic(jobs, mine, left) == pytest.approx(best)


def test_gpus_go_where_the_goodput_grows() -> None:
    flat, steep = elastic(1, (1.0, 1.1, 1.2, 1.2)), elastic(2, (1.0, 2.0, 3.0, 4.0))
    assert sizes(3, flat, steep) == [1, 4]
    assert sizes(6, flat, steep) == [3, 4]  # the last GPU would gain nobody anything


def test_a_step_over_a_size_that_loses_is_taken_whole() -> None:
    job = elastic(1, (1.0, 0.9, 3.0))
    assert sizes(2, job) == [3]
    assert sizes(1, job) == [1]


def test_two_jobs_that_scale_alike_share_alike() -> None:
    linear = (1.0, 2.0, 3.0, 4.0)
    assert sizes(4, elastic(1, linear), elastic(2, linear)) == [3, 3]


def test_a_job_that_was_reallocated_often_for_its_age_keeps_what_it_has() -> None:
    """T = 300 s: another size counts (300 - R 30) / 330 times."""
    linear = tuple(1.0 + 0.2 * at for at in range(4))
    calm = elastic(1, linear, held=2, age_s=300.0)
    shaken = elastic(1, linear, held=2, age_s=300.0, attempts=9)
    assert sizes(2, calm) == [3]
    assert sizes(2, shaken) == [2]
    assert REALLOCATION_S == 30.0


def test_nobody_is_named_twice_and_nothing_is_left_out() -> None:
    assert grow([], 5, False) == {}
    assert grow([elastic(1, (1.0,))], 5, False) == {JobId(1): 1}


def test_the_narrowest_base_comes_first() -> None:
    wide = a_waiting_job(1, request=Request(gpus=4, sizes=(2, 4)))
    assert fewest_base(wide, Had(0.0, 0.0)) == (2,)
