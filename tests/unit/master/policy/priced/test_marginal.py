"""Marginal allocation: wishes, worths, packing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.marginal import (
    HOLD,
    MarginalWish,
    NodePacking,
    allocate,
    concave,
    hurried,
    marginal,
    wishes,
)
from dlq_master.policy.priced.schedules import settled
from dlq_master.policy.priced.situation import Grant, PricedJob, Schedule, Situation
from support.extent import times
from unit.master.policy.priced.drawing import PLAIN, TABLE_2, chance, drawn, job, situation


def test_nobody_gets_more_than_the_cheapest_shape_in_time_while_there_is_room() -> None:
    made = marginal(situation(job(0, 65, 100, 60, 45, 40), job(1, 150, 100, 60, 45, 40)), chance())
    assert {key: gpus for key, (_, gpus) in made.grants.items()} == {0: 2, 1: 1}
    assert sorted(made.types.values()) == [0, 1], "two small nodes leave nothing idle"


def test_who_will_be_late_gets_what_helps() -> None:
    assert marginal(situation(job(0, 10, 100, 60, 45, 45)), chance()).grants == {0: Grant(0, 3)}


def test_when_it_is_not_enough_gpus_go_where_one_more_is_worth_most() -> None:
    """Both are late, w/t(g): job 0 has 3/100, 3/60, 3/45, 3/40; job 1 1/100, ...: 4 GPUs are
    there.
    """
    asked = situation(
        job(0, 0, 100, 60, 45, 40, weight=3.0), job(1, 0, 100, 60, 45, 40, weight=1.0), nodes=1
    )
    gains = [3 * (1 / 60 - 1 / 100), 3 * (1 / 45 - 1 / 60), 3 * (1 / 40 - 1 / 45), 1 / 100]
    assert gains[0] > gains[1] > gains[3] > gains[2]
    made = marginal(asked, chance())
    assert {key: gpus for key, (_, gpus) in made.grants.items()} == {0: 3, 1: 1}


def test_a_far_due_date_is_worth_little() -> None:
    near, far = job(0, 41, 100, 60, 45, 40), job(1, 400, 100, 60, 45, 40, weight=5.0)
    urgency = wishes(situation(near, far), 1.0).urgency
    assert urgency == pytest.approx([np.exp(-1 / 40), 5 * np.exp(-360 / 40)])
    assert wishes(situation(near, far), 9.0).urgency[1] == pytest.approx(5 * np.exp(-360 / 360))


@given(seed=st.integers(0, 10**6), capacity=st.integers(1, 60))
@settings(max_examples=times(20, 60))
def test_the_best_worths_are_the_best_sum_of_worths(seed: int, capacity: int) -> None:
    """Against the greedy choice GPU by GPU, which is optimal for concave curves."""
    wish = wishes(drawn(seed, 9, 4), 1.0)
    wish = wish._replace(rate=concave(wish.rate))
    given_ = allocate(wish, capacity, np.zeros(9, dtype=int))
    worth = wish.urgency[:, None] * np.diff(wish.rate, axis=1)
    best = np.zeros(9, dtype=int)
    for _ in range(capacity):
        left = [worth[n, best[n]] if best[n] < wish.gpus[n] else -1.0 for n in range(9)]
        if max(left) < 0:
            break
        best[int(np.argmax(left))] += 1
    sums = [sum(worth[n, : counts[n]].sum() for n in range(9)) for counts in (given_, best)]
    assert sums[0] == pytest.approx(sums[1])
    assert given_.sum() == min(capacity, int(wish.gpus.sum()))


def test_curves_with_holes_are_judged_by_their_hull() -> None:
    rate = np.array([[0.0, 0.0, 4.0, 4.0, 6.0]])
    assert concave(rate).tolist() == [[0.0, 2.0, 4.0, 5.0, 6.0]]
    straight = np.array([[0.0, 3.0, 5.0, 6.0, 6.0]])
    assert concave(straight) is straight


def test_a_worth_of_nothing_is_still_given_if_gpus_are_left() -> None:
    wish = MarginalWish(
        np.zeros(2, dtype=int), np.array([2, 2]),
        np.array([[0, 1, 1.5], [0, 1, 1.5]]), np.ones(2), np.array([1.0, 0.0]),
    )  # fmt: skip
    assert allocate(wish, 3, np.zeros(2, dtype=int)).tolist() == [2, 1]


def test_a_job_is_put_where_it_adds_least_to_the_price() -> None:
    packing = NodePacking(PLAIN, 3)
    assert packing.cheapest(0, 3) == (4 * 3600.0, -1)
    first = packing.put(0, 0, 3, -1)
    assert packing.cheapest(0, 1) == (0.0, first), "a node of 4 is paid for already"
    assert packing.cheapest(0, 2) == (2 * 3600.0, -1)
    packing.put(1, 0, 1, first)
    assert packing.cheapest(0, 1) == (3600.0, -1)


def test_without_a_node_for_it_a_job_gets_what_is_left_of_one() -> None:
    wide = job(1, 0, 100, 60, 45, np.inf, weight=0.2)
    asked = situation(job(0, 0, 90, 50, 30, np.inf, weight=9.0), wide, nodes=1)
    made = marginal(asked, chance())
    assert {key: gpus for key, (_, gpus) in made.grants.items()} == {0: 3, 1: 1}


def test_gpus_do_not_change_hands_for_next_to_nothing() -> None:
    def wish(urgency: float) -> MarginalWish:
        rate = np.array([[0.0, 1.0], [0.0, 1.0]])
        one = np.ones(2, dtype=int)
        return MarginalWish(np.zeros(2, dtype=int), one, rate, np.ones(2), np.array([1.0, urgency]))

    mine = np.array([1, 0])
    assert allocate(wish(1 + 0.9 * HOLD), 1, mine).tolist() == [1, 0]
    assert allocate(wish(1 + 1.1 * HOLD), 1, mine).tolist() == [0, 1]
    assert allocate(wish(1 + 0.9 * HOLD), 1, mine[::-1]).tolist() == [0, 1]


def test_who_keeps_its_size_stays_where_it_is() -> None:
    """Packed anew, the three would share two nodes."""
    had = Schedule(
        {0: 2, 1: 1, 2: 0}, {1: Grant(0, 2), 2: Grant(1, 2), 3: Grant(2, 1), 4: Grant(0, 2)}
    )
    wide, small = (100, 60, 45, 40), (90, 60, 45, 40)
    asked = situation(
        job(1, 65, *wide), job(2, 65, *wide), job(3, 95, *small), nodes=3, running=had
    )
    made = settled(asked, marginal(asked, chance()))
    assert made.grants == {1: Grant(0, 2), 2: Grant(1, 2), 3: Grant(2, 1)}
    assert made.types == {0: 1, 1: 1, 2: 0}, "the node that job 4 has left shrinks"


@given(seed=st.integers(0, 10**6), count=st.integers(1, 14))
@settings(max_examples=times(15, 40))
def test_deciding_again_changes_nothing(seed: int, count: int) -> None:
    """Where all wishes fit; the node's shrinking moved nobody to another size."""
    asked = drawn(seed, count, 14)
    first = settled(asked, marginal(asked, chance()))
    again = Situation(asked.now_s, asked.jobs, asked.catalogue, asked.nodes, first)
    second = settled(again, marginal(again, chance()))
    gpus = [{key: grant.gpus for key, grant in made.grants.items()} for made in (first, second)]
    assert gpus[0] == gpus[1]


def test_when_gpus_are_short_each_wishes_for_its_fastest_kind() -> None:
    k80, m60 = TABLE_2.kinds.index("K80"), TABLE_2.kinds.index("M60")
    time = np.array([[100.0 / g**0.9 for g in range(1, 9)]] * 2)
    time[m60] /= 1.08  # less than it costs more
    calm = Situation(0.0, (PricedJob(0, 60.0, 1.0, time),), TABLE_2, 1)
    wish = wishes(calm, 1.0)
    assert (wish.kind.tolist(), wish.gpus.tolist()) == ([k80], [2])
    hurry = hurried(calm, wish)
    assert (hurry.kind.tolist(), hurry.gpus.tolist()) == ([m60], [2])
    late = Situation(0.0, (PricedJob(0, 1.0, 1.0, time),), TABLE_2, 1)
    assert hurried(late, wishes(late, 1.0)).gpus.tolist() == [8]
    few = tuple(PricedJob(key, 60.0, 1.0, time) for key in range(4))
    many = tuple(PricedJob(key, 60.0, 1.0, time) for key in range(5))
    for jobs, kind in ((few, "K80"), (many, "M60")):
        made = marginal(Situation(0.0, jobs, TABLE_2, 1), chance())
        assert [TABLE_2.types[n].kind for n in made.types.values()] == [kind]
