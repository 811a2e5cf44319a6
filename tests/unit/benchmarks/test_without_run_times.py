"""The best policy without run times on small instances, against a search over all choices."""

from __future__ import annotations

from itertools import product
from statistics import fmean

import pytest
from benchmarks.papers.small.cases import FITTED, LONGEST_H, SmallJob, instances
from benchmarks.papers.small.optimum import least_h
from benchmarks.papers.small.without_run_times import Blind, Coming, reached_blind_h


def coming(case: tuple[SmallJob, ...]) -> Coming:
    return tuple(sorted((job.submit_h, job.gpus) for job in case))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["mixed", "wide"])
def test_of_one_width_the_oldest_first_is_as_good_as_any_choice(kind: str, seed: int) -> None:
    case = [*instances(kind, FITTED, 4)][seed][:4]
    of_oldest, _ = Blind().plan(0, (), coming(case))
    of_all, _ = Blind(oldest_first=False).plan(0, (), coming(case))
    assert of_oldest == pytest.approx(of_all, rel=1e-12)


def test_the_mean_over_all_run_times_is_what_was_planned() -> None:
    arrivals = ((0, 2), (1, 3), (2, 2))
    blind, hours = Blind(), range(1, LONGEST_H + 1)
    cases = [
        tuple(
            SmallJob(at_h, gpus, run_h) for (at_h, gpus), run_h in zip(arrivals, runs, strict=True)
        )
        for runs in product(hours, repeat=len(arrivals))
    ]
    reached = [reached_blind_h(case, blind, told=True) for case in cases]
    assert fmean(reached) == pytest.approx(blind.plan(0, (), arrivals)[0])
    assert all(ours >= least_h(case) for ours, case in zip(reached, cases, strict=True))
    not_told = [reached_blind_h(case, blind, told=False) for case in cases]
    assert fmean(not_told) >= fmean(reached)


def test_two_jobs_at_once_whose_run_times_nobody_knows() -> None:
    """Whichever is first, it goes on to its end: what is left of it is the shorter one."""
    mean_h = (1 + LONGEST_H) / 2
    assert Blind().plan(0, ((4, 0), (4, 0)), ())[0] == pytest.approx(3 * mean_h)
