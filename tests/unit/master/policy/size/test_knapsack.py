"""Aryl's second phase: the items of its Figure 6, the greedy by steps and the exact knapsack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.resources import Request
from dlq_master.policy.size import knapsack, knapsack_exact
from dlq_master.policy.size.knapsack import Packed, worth_s
from dlq_master.policy.size.sizing import Candidate
from support.builders import a_waiting_job

BOTH = pytest.mark.parametrize("packed", [knapsack.packed, knapsack_exact.packed])
Solver = Callable[[Sequence[Candidate], int], Packed]


def elastic(number: int, base_s: float, *sizes: int, speeds: tuple[float, ...] = ()) -> Candidate:
    """It takes `base_s` on its base, which it asks for."""
    request = Request(gpus=sizes[0], sizes=sizes)
    return Candidate(a_waiting_job(number, request=request, speeds=speeds), 0, base_s)


# Table 4: A has workers of 2 GPUs, as in Figure 6, and B of 1.
A, B = elastic(1, 150.0, 4, 6), elastic(2, 60.0, 2, 3, 4, 5, 6)


def test_the_items_of_figure_6_weigh_only_what_they_add() -> None:
    items = [
        (size - one.base, worth_s(one, size))
        for one in (A, B)
        for size in one.job.request.sizes[1:]
    ]
    expected = [(2, 50), (1, 20), (2, 30), (3, 36), (4, 40)]
    assert [gpus for gpus, _ in items] == [gpus for gpus, _ in expected]
    assert [worth for _, worth in items] == pytest.approx([worth for _, worth in expected])


@BOTH
@pytest.mark.parametrize(
    ("left", "sizes", "value"),
    [
        (0, (4, 2), 0),
        (1, (4, 3), 20),
        (3, (6, 3), 70),
        (4, (6, 4), 80),
        (6, (6, 6), 90),
        (99, (6, 6), 90),
    ],
)
def test_figure_6(packed: Solver, left: int, sizes: tuple[int, int], value: float) -> None:
    found = packed([A, B], left)
    assert tuple(found.sizes.values()) == sizes
    assert found.value == pytest.approx(value)


@BOTH
def test_table_2_is_missed_and_table_4_is_met(packed: Solver) -> None:
    two = [elastic(1, 150.0, 2, 3, 4, 5, 6), elastic(2, 60.0, 2, 3, 4, 5, 6)]
    assert list(packed(two, 4).sizes.values()) == [5, 3]
    four = [elastic(1, 150.0, 2, 3), elastic(2, 60.0, 2, 3, 4, 5, 6)]
    assert list(packed(four, 4).sizes.values()) == [3, 5]


def test_steps_leave_gpus_where_the_exact_knapsack_does_not() -> None:
    """The small step is worth more for each GPU; then the wide one does not fit any more."""
    wide, small = elastic(1, 100.0, 4, 8), elastic(2, 30.0, 1, 2)
    by_steps = knapsack.packed([wide, small], 4)
    assert list(by_steps.sizes.values()) == [4, 2]
    assert by_steps.value == pytest.approx(15)
    exact = knapsack_exact.packed([wide, small], 4)
    assert list(exact.sizes.values()) == [8, 1]
    assert exact.value == pytest.approx(50)
    assert by_steps.bound == pytest.approx(15 + 12.5 * 3)


@BOTH
def test_a_size_that_gains_only_together_with_the_one_before_is_found(packed: Solver) -> None:
    late = elastic(1, 100.0, 1, 2, 3, speeds=(1.0, 1.01, 4.0))
    other = elastic(2, 100.0, 1, 2, 3, speeds=(1.0, 1.3, 1.5))
    assert list(packed([late, other], 2).sizes.values()) == [3, 1]


@pytest.mark.parametrize("grow", [knapsack.grow, knapsack_exact.grow])
def test_whose_run_time_nobody_knows_gets_what_is_left(grow: Callable[..., object]) -> None:
    unknown = elastic(3, inf, 1, 2, 3)
    assert grow([unknown, B], 5, False) == {B.job.job_id: 6, unknown.job.job_id: 2}


# --- whatever the jobs ----------------------------------------------------------------------------


@st.composite
def some(draw: st.DrawFn, *, linear: bool) -> tuple[list[Candidate], int]:
    made = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        if linear:
            each, least = draw(st.sampled_from([1, 2, 3])), draw(st.integers(1, 3))
            sizes = tuple(each * w for w in range(least, least + draw(st.integers(2, 4))))
            speeds: tuple[float, ...] = ()
        else:
            sizes = tuple(sorted(draw(st.sets(st.integers(1, 9), min_size=2, max_size=4))))
            gains = [draw(st.floats(0, 2)) for _ in sizes[1:]]
            speeds = (1.0, *(1.0 + sum(gains[: at + 1]) for at in range(len(gains))))
        made.append(elastic(number, draw(st.floats(1, 100)), *sizes, speeds=speeds))
    return made, draw(st.integers(0, 14))


def best(candidates: Sequence[Candidate], left: int) -> float:
    """All choices."""
    values = [0.0]
    for sizes in product(*(one.job.request.sizes for one in candidates)):
        pairs = list(zip(candidates, sizes, strict=True))
        if sum(size - one.base for one, size in pairs) <= left:
            values.append(sum(worth_s(one, size) for one, size in pairs))
    return max(values)


@pytest.mark.parametrize("linear", [True, False])
@given(data=st.data())
def test_exact_is_the_best_of_all_choices_and_steps_stay_below_their_bound(
    linear: bool, data: st.DataObject
) -> None:
    candidates, left = data.draw(some(linear=linear))
    optimum = best(candidates, left)
    for found in (knapsack_exact.packed(candidates, left), knapsack.packed(candidates, left)):
        pairs = [(one, found.sizes[one.job.job_id]) for one in candidates]
        assert all(size in one.job.request.sizes for one, size in pairs)
        assert sum(size - one.base for one, size in pairs) <= left
        assert found.value == pytest.approx(sum(worth_s(*pair) for pair in pairs), abs=1e-6)
        assert found.value <= optimum + 1e-6
        assert found.bound >= optimum - 1e-6
    assert knapsack_exact.packed(candidates, left).value == pytest.approx(optimum, abs=1e-6)


@given(data=st.data())
def test_steps_are_optimal_where_all_workers_are_as_large(data: st.DataObject) -> None:
    candidates, left = data.draw(some(linear=True))
    candidates = [one for one in candidates if one.next_size(one.base) == one.base + 1]
    assert knapsack.packed(candidates, left).value == pytest.approx(
        best(candidates, left) if candidates else 0.0, abs=1e-6
    )


def algorithm_2(candidates: Sequence[Candidate], left: int) -> float:
    """`MaxValueDP` as printed, one job after the other, with w D as the weight."""
    values = [0.0] * (left + 1)
    for one in candidates:
        items = [(size - one.base, worth_s(one, size)) for size in one.job.request.sizes]
        values = [
            max(values[gpus - weight] + worth for weight, worth in items if weight <= gpus)
            for gpus in range(left + 1)
        ]
    return values[left]


@pytest.mark.parametrize("seed", range(8))
def test_exact_is_the_dynamic_program_of_algorithm_2(seed: int) -> None:
    """Many jobs of each width, so that every group is a long curve."""
    dice = Random(seed)
    made = []
    for number in range(1, 41):
        each, least = dice.choice((1, 2, 3, 8)), dice.randint(1, 4)
        sizes = tuple(each * w for w in range(least, least + dice.randint(2, 6)))
        speeds = (1.0, 1.1, 2.0) if number % 10 == 0 else ()
        made.append(elastic(number, dice.uniform(1, 1000), *sizes[:3], speeds=speeds))
        if not speeds:
            made[-1] = elastic(number, dice.uniform(1, 1000), *sizes)
    for left in (0, 1, 7, 8, 50, 111, 250, 2000):
        found = knapsack_exact.packed(made, left)
        used = sum(found.sizes[one.job.job_id] - one.base for one in made)
        assert used <= left
        assert found.value == pytest.approx(algorithm_2(made, left), abs=1e-6)
        told = sum(worth_s(one, found.sizes[one.job.job_id]) for one in made)
        assert found.value == pytest.approx(told, abs=1e-6)
