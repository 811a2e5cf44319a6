"""FIFO, EDF, PS and the dynamic programs that the paper compares with."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.compared.dp import Variant, chosen, dp
from dlq_master.policy.priced.compared.first_principle import edf, fifo, ps
from dlq_master.policy.priced.situation import Grant, Schedule
from support.extent import times
from unit.master.policy.priced.drawing import chance, job, situation

TIMES = (100, 60, 45, 40)


def test_each_takes_the_next_job_by_its_own_order() -> None:
    jobs = (job(1, 300, *TIMES), job(2, 200, *TIMES), job(3, 250, *TIMES, weight=9.0))
    asked = situation(*jobs, nodes=1)
    assert list(fifo(asked, chance()).grants) == [1]
    assert list(edf(asked, chance()).grants) == [2]
    assert list(ps(asked, chance()).grants) == [3]


def test_what_runs_is_never_changed() -> None:
    had = Schedule({1: 2}, {1: Grant(1, 3)})
    asked = situation(job(1, 300, *TIMES), job(2, 62, *TIMES), nodes=2, running=had)
    made = edf(asked, chance())
    assert made.grants == {1: Grant(1, 3), 2: Grant(0, 2)}
    assert made.types == {1: 2, 0: 1}


def test_a_node_whose_job_has_ended_is_free() -> None:
    had = Schedule({0: 2}, {1: Grant(0, 3)})
    made = fifo(situation(job(2, 200, *TIMES), nodes=1, running=had), chance())
    assert (made.types, made.grants) == ({0: 0}, {2: Grant(0, 1)})


costs = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=7)


@given(costs=costs, nodes=st.integers(0, 4))
@settings(max_examples=times(30, 80))
def test_the_program_finds_the_cheapest_set_of_jobs(
    costs: list[tuple[float, float]], nodes: int
) -> None:
    run, postponed = (np.array(column) for column in zip(*costs, strict=True))
    found = chosen(run, postponed, nodes)
    assert len(found) <= nodes

    def total(into: tuple[int, ...]) -> float:
        return float(sum(run[n] if n in into else postponed[n] for n in range(len(run))))

    every = [c for size in range(nodes + 1) for c in combinations(range(len(run)), size)]
    assert total(tuple(found)) == pytest.approx(min(map(total, every)))


@pytest.mark.parametrize(
    ("variant", "gpus"),
    [
        (Variant.WCT, 1),  # nothing is late within a step
        (Variant.ADJ_WCT, 3),  # a node of 4 for a step is cheaper than being late
        (Variant.FAST_WCT, 4),
        (Variant.FAST_B, 4),
    ],
)
def test_f1_chooses_the_configuration(variant: Variant, gpus: int) -> None:
    asked = situation(job(0, 46, 100, 60, 45, 44.99, weight=2.0), nodes=1)
    assert dp(asked, chance(), variant=variant, step_s=10.0).grants == {0: Grant(0, gpus)}


def test_who_is_postponed_at_no_cost_waits_but_with_b() -> None:
    asked = situation(job(0, 1e6, *TIMES), nodes=1)
    assert dp(asked, chance(), variant=Variant.FAST_WCT, step_s=10.0).grants == {}
    assert dp(asked, chance(), variant=Variant.FAST_B, step_s=10.0).grants == {0: Grant(0, 4)}
