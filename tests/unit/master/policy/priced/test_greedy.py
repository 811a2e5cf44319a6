"""Greedy, randomised greedy and the proxies, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dlq_master.policy.priced.greedy import greedy as methods
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.configurations import ranked_configurations
from dlq_master.policy.priced.greedy.construct import construct, queue
from dlq_master.policy.priced.greedy.greedy import GREEDY, RANDOMIZED, greedy
from dlq_master.policy.priced.greedy.postprocess import give_idle
from dlq_master.policy.priced.greedy.proxy import cost, efficiency, released_cost
from dlq_master.policy.priced.rules import PaperReading, Proxy, Rules
from dlq_master.policy.priced.situation import Grant, Situation
from unit.master.policy.priced.drawing import TABLE_2, chance, drawn, job, situation

RELEASED = Rules(reading=PaperReading.REFERENCE)


def batch(asked: Situation, kinds: list[int], *grants: tuple[int, int]) -> ScheduleRows:
    """One row: (node, GPUs) of each job."""
    made = ScheduleRows.empty(asked, 1)
    made.kind[0] = kinds
    for number, (node, gpus) in enumerate(grants):
        if node >= 0:
            made.node[0, number], made.gpus[0, number] = node, gpus
            made.used[0, node] += gpus
    return made


def test_a_job_gets_the_cheapest_configuration_that_makes_its_due_date() -> None:
    made = greedy(situation(job(0, 65, 100, 60, 45, 40)), chance())
    assert made.grants == {0: Grant(0, 2)}  # 1 GPU is late, 2 cost 120 $, 3 and 4 more


def test_a_job_that_will_be_late_gets_the_fastest() -> None:
    assert greedy(situation(job(0, 10, 100, 60, 45, 40)), chance()).grants == {0: Grant(0, 4)}


def test_the_most_pressing_job_chooses_first_and_the_rest_is_shrunk_to_what_is_left() -> None:
    # Pressures 40-30 = 10 and 40-35 = 5: both want 4 GPUs, there are 4.
    asked = situation(job(0, 35, 100, 60, 45, 40), job(1, 30, 100, 60, 45, 40), nodes=1)
    assert greedy(asked, chance()).grants == {1: Grant(0, 4)}
    # The last one wants 2 GPUs, and one is left.
    slow = job(2, 700, 1000, 600, 450, 400)
    asked = situation(job(0, 61, 100, 60, 45, 40), job(1, 200, 100, 60, 45, 40), slow, nodes=1)
    assert greedy(asked, chance()).grants == {0: Grant(0, 2), 1: Grant(0, 1), 2: Grant(0, 1)}


def test_of_the_open_nodes_the_one_with_the_fewest_gpus_left_is_taken() -> None:
    three, two = job(0, 46, 100, 60, 45, np.inf), job(1, 51, 100, 50, np.inf, np.inf)
    asked = situation(three, two, job(2, 150, 100, 60, 45, 40), nodes=2)
    made = greedy(asked, chance())
    assert made.grants[2].node == made.grants[0].node != made.grants[1].node


def test_a_node_shrinks_to_what_is_used_and_idle_gpus_speed_up_who_gains_most() -> None:
    small = greedy(situation(job(0, 120, 100, 60, 45, 40)), chance())
    assert (small.grants, small.types) == ({0: Grant(0, 1)}, {0: 0})
    # 2 and 1 GPUs, on a node of 4: the last one saves 15 s of the one and 40 s of the other.
    made = greedy(situation(job(0, 65, 100, 60, 45, 40), job(1, 150, 100, 60, 45, 40)), chance())
    assert (made.grants, made.types) == ({0: Grant(0, 2), 1: Grant(0, 2)}, {0: 2})


def test_idle_gpus_go_to_one_job_of_each_node_or_in_all() -> None:
    asked = situation(*(job(n, 99, 80, 60, 48 - 8 * n, 40 - 8 * n) for n in range(2)))
    each = batch(asked, [0, 0], (0, 3), (1, 3))
    give_idle(each)
    assert each.gpus[0].tolist() == [4, 4]
    asked = situation(job(0, 99, 80, 60, 48, 45), job(1, 99, 80, 60, 48, 40))
    one = batch(asked, [0, 0], (0, 3), (1, 3))
    give_idle(one, to_one=True)
    assert one.gpus[0].tolist() == [3, 4]


def test_idle_gpus_that_help_nobody_stay_idle() -> None:
    asked = situation(job(0, 99, 80, 60, 48, np.inf))
    made = batch(asked, [0, -1], (0, 3))
    give_idle(made)
    assert made.gpus[0].tolist() == [3]


def test_f_obj_as_printed() -> None:
    """Job 0 is 10 s late, job 1 waits: at worst H + 100 - 70 late; one idle GPU; the node of 4
    until 40 s.
    """
    asked = Situation(
        0.0, (job(0, 35, 100, 60, 45, 40), job(1, 70, 100, 60, 45, 40, weight=2.0)),
        situation(job(0, 1, 1)).catalogue, 1, interval_s=20.0,
    )  # fmt: skip
    made = batch(asked, [0], (0, 3), (-1, 0))
    found = cost(made, Rules(rho=100, mu=7))[0]
    assert found == pytest.approx((45 - 35) + 100 * 2 * (20 + 100 - 70) + 7 + 4 * 45)


def test_f_obj_as_released_counts_until_the_first_job_ends_and_knows_no_idle_gpus() -> None:
    asked = situation(
        job(0, 35, 100, 60, 45, 40), job(1, 20, 30, 20, 15, 12), job(2, 70, 100, 60, 45, 40)
    )
    made = batch(asked, [0, 0], (0, 3), (1, 1), (-1, 0))
    assert released_cost(made, RELEASED)[0] == pytest.approx((4 + 1) * 30 + (30 - 20) + 100 * 30)


def test_f_bar_divides_the_longest_time_by_what_a_job_costs_in_its_part_of_the_node() -> None:
    asked = situation(job(0, 35, 100, 60, 45, 40), job(1, 200, 100, 60, 45, 40), nodes=1)
    made = batch(asked, [0], (0, 2), (0, 1))  # a node of 4, of which 3 are used
    expected = 100 / (60 * 4 * 2 / 3 + (60 - 35)) + 100 / (100 * 4 / 3)
    assert efficiency(made)[0] == pytest.approx(expected)


def test_row_0_of_a_randomised_construction_is_the_greedy_schedule() -> None:
    asked = drawn(5, 20, 3)
    for rules in (RANDOMIZED._replace(iterations=30, alpha=0.5), RELEASED._replace(iterations=30)):
        many = construct(asked, rules, chance())
        give_idle(many, to_one=rules.released)
        assert many.schedule(0) == greedy(asked, chance(), rules)
        others = {str(many.schedule(row)) for row in range(30)}
        assert len(others) > 5, "nothing is drawn"


def test_the_queue_is_sorted_by_pressure_and_only_neighbours_that_are_drawn_change_places() -> None:
    asked = drawn(5, 20, 3)
    order = queue(asked, Rules(), 200, chance())
    pressure = asked.fastest - asked.due
    assert order[0].tolist() == sorted(range(20), key=lambda n: -pressure[n])
    assert all(sorted(row) == list(range(20)) for row in order.tolist())


@pytest.mark.parametrize(
    ("reading", "lighter"), [(PaperReading.PAPER, True), (PaperReading.REFERENCE, False)]
)
def test_in_the_paper_the_lighter_job_is_likelier_to_be_moved_back(
    reading: PaperReading, lighter: bool
) -> None:
    heavy = job(0, 35, 100, 60, 45, 40, weight=2.0)
    asked = situation(heavy, job(1, 36, 100, 60, 45, 40, weight=1.0))
    order = queue(asked, Rules(reading=reading, swap=0.4), 2000, chance())
    swapped = (order[:, 0] == 1).mean()
    assert swapped == pytest.approx(0.1 if lighter else 0.9, abs=0.03)


def test_on_its_due_date_a_job_is_late_by_the_prose_and_in_time_as_released() -> None:
    asked = situation(job(0, 60, 100, 60, 45, 40))
    assert greedy(asked, chance(), GREEDY).grants[0].gpus == 4
    assert (
        greedy(asked, chance(), GREEDY._replace(reading=PaperReading.REFERENCE)).grants[0].gpus == 2
    )


def test_configurations_are_ranked_by_price_in_time_then_by_speed() -> None:
    asked = situation(job(0, 62, 100, 60, 45, 40))
    found = ranked_configurations(asked)
    assert found.count.tolist() == [4]  # A2 with 2, A4 with 2, 3 and 4
    assert [(int(found.gpus[n])) for n in found.best[0]] == [2, 4, 3, 2, 1, 1, 1]
    assert found.shape_gpus[found.shapes[0]].tolist() == [2, 4, 3, 1]


def test_more_iterations_are_never_worse_by_the_proxy() -> None:
    asked = drawn(9, 25, 3)
    rules = RANDOMIZED._replace(proxy=Proxy.EFFICIENCY, alpha=0.3, iterations=60)
    many = methods._constructed(asked, rules, chance())
    scores = efficiency(many)
    assert many.schedule(int(scores.argmax())) == methods.randomized(asked, chance(), rules)
    assert scores.max() > scores[0]


def test_all_of_table_2_can_be_drawn() -> None:
    asked = drawn(2, 6, 4, catalogue=TABLE_2)
    found = ranked_configurations(asked)
    assert found.best.shape == (6, 30)
    assert sorted(found.best[0].tolist()) == list(range(30))
