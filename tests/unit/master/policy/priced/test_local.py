"""Local search: each neighbourhood's change, and never for the worse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.construct import construct
from dlq_master.policy.priced.greedy.local import MOST_CHANGES, climb
from dlq_master.policy.priced.greedy.postprocess import give_idle
from dlq_master.policy.priced.greedy.proxy import efficiency
from dlq_master.policy.priced.rules import Proxy, Rules
from dlq_master.policy.priced.schedules import faults
from dlq_master.policy.priced.situation import PricedJob, Situation
from support.extent import times
from unit.master.policy.priced.drawing import PLAIN, chance, drawn, job, situation

WIDE = Rules(proxy=Proxy.EFFICIENCY, alpha=0.5, iterations=2)


def rows(asked: Situation, *places: tuple[int, int], kinds: tuple[int, ...]) -> ScheduleRows:
    """(Node or -1, GPUs) of each job, and the kind of each node."""
    batch = ScheduleRows.empty(asked, 1)
    batch.node[0] = [node for node, _ in places]
    batch.gpus[0] = [gpus for _, gpus in places]
    for node, kind in enumerate(kinds):
        used = sum(gpus for at, gpus in places if at == node)
        batch.used[0, node] = used
        batch.kind[0, node] = kind if used else -1
    return batch


def places(batch: ScheduleRows) -> list[tuple[int, int]]:
    return list(zip(batch.node[0].tolist(), batch.gpus[0].tolist(), strict=True))


@given(seed=st.integers(0, 10**6), count=st.integers(2, 14), nodes=st.integers(1, 5))
@settings(max_examples=times(15, 60))
def test_it_ends_no_worse_and_possible(seed: int, count: int, nodes: int) -> None:
    asked = drawn(seed, count, nodes)
    batch = construct(asked, WIDE, chance(seed))
    give_idle(batch)
    begun = batch.rows(np.array([1]))
    kept = places(begun)
    made = climb(begun, MOST_CHANGES)
    assert places(begun) == kept, "the row that it started from was changed"
    assert efficiency(made)[0] >= efficiency(begun)[0]
    assert faults(asked, made.schedule(0)) == []


def test_a_waiting_job_takes_the_place_of_one_that_is_less_pressing_and_worth_less() -> None:
    # Both would be in time. The second one's slowest run is its longest by far: f-bar wants it.
    slow = PricedJob(1, 2000.0, 1.0, np.array([[1000.0, 900.0, 1.0, 9000.0]]))
    asked = situation(job(0, 5000.0, 1000.0, 1000.0, 1000.0, 1000.0), slow, nodes=1)
    made = climb(rows(asked, (0, 1), (-1, 0), kinds=(0,)), 1)
    assert places(made) == [(-1, 0), (0, 1)]


def test_a_job_that_is_more_pressing_is_not_put_back_for_one_that_is_less() -> None:
    pressing = PricedJob(0, 1000.0, 1.0, np.array([[1000.0] * 4]))
    patient = PricedJob(1, 90_000.0, 1.0, np.array([[1000.0, 900.0, 1.0, 9000.0]]))
    asked = situation(pressing, patient, nodes=1)
    made = climb(rows(asked, (0, 1), (-1, 0), kinds=(0,)), 1)
    assert places(made) == [(0, 1), (-1, 0)]


def test_a_late_job_changes_places_with_one_that_has_time() -> None:
    late = job(0, 100.0, 1000.0, 100.0, 100.0, 100.0)
    rich = job(1, 9000.0, 1000.0, 990.0, 980.0, 970.0)
    third = job(2, 9000.0, 500.0, 500.0, 500.0, 500.0)
    asked = situation(late, rich, third, nodes=3)
    begun = rows(asked, (0, 1), (1, 2), (2, 1), kinds=(0, 0, 0))
    assert places(climb(begun, 1)) == [(1, 2), (0, 1), (2, 1)]


def test_there_is_no_swap_on_two_nodes_as_in_the_program() -> None:
    late = job(0, 100.0, 1000.0, 100.0, np.inf, np.inf)
    rich = job(1, 9000.0, 1000.0, 990.0, np.inf, np.inf)
    begun = rows(situation(late, rich), (0, 1), (1, 2), kinds=(0, 0))
    assert places(climb(begun, 0)) == [(0, 1), (1, 2)]
    assert places(climb(begun, 1))[1] == (1, 2)


@pytest.mark.parametrize(
    ("had", "found", "time_s"),
    [
        (1, 2, (1000.0, 100.0, 100.0, 100.0)),  # twice as many make the due date
        (2, 1, (500.0, 499.0, 499.0, 499.0)),  # half of them are as good, and cost half
    ],
)
def test_a_node_with_a_late_job_is_doubled_or_halved(
    had: int, found: int, time_s: tuple[float, ...]
) -> None:
    asked = situation(job(0, 120.0, *time_s), nodes=1)
    made = climb(rows(asked, (0, had), kinds=(0,)), 1)
    assert places(made) == [(0, found)]
    assert made.used[0].tolist() == [found]


def test_a_node_with_a_late_job_gets_another_kind() -> None:
    catalogue = Catalogue((NodeType("a1", "A", 1, 1.0), NodeType("b1", "B", 1, 1.5)))
    late = PricedJob(0, 150.0, 1.0, np.array([[300.0], [100.0]]))
    asked = Situation(0.0, (late,), catalogue, 1)
    made = climb(rows(asked, (0, 1), kinds=(0,)), 1)
    assert made.kind[0].tolist() == [1]


def test_the_number_of_changes_is_bounded() -> None:
    asked = situation(job(0, 120.0, 1000.0, 400.0, 300.0, 100.0), nodes=1)
    begun = rows(asked, (0, 1), kinds=(0,))
    assert places(climb(begun, 1)) == [(0, 2)]
    assert places(climb(begun, MOST_CHANGES)) == [(0, 4)]
    assert PLAIN.room[0, 4] == 4
