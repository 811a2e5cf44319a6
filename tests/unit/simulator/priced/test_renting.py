"""What rented nodes cost when they are given back and asked for again."""

from __future__ import annotations

import pytest

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_simulator.priced.renting import Renting

HOUR = 3600.0
A, B = 0, 1


def renting(most: int = 2, until_s: float = 1e9) -> Renting:
    """Both cost a dollar an hour, boot for 2 minutes and are paid for an hour at least."""
    types = (
        NodeType("A1", "A", 1, 1.0, 120.0, HOUR, until_s),
        NodeType("B1", "B", 1, 1.0, 120.0, HOUR),
    )
    return Renting(Catalogue(types), most)


def test_a_node_that_is_paid_for_is_had_again_for_nothing_and_without_booting() -> None:
    nodes = renting()
    nodes.become({0: A}, 0.0)
    nodes.become({}, 600.0)
    nodes.become({1: A}, 1200.0)
    assert nodes.ready_s(1) == 120.0
    nodes.become({}, 2 * HOUR)
    nodes.close(3 * HOUR)
    assert nodes.cost == pytest.approx(2.0), "one node, from when it was asked for first"


def test_after_its_minimum_it_has_gone_and_a_new_one_boots() -> None:
    nodes = renting()
    nodes.become({0: A}, 0.0)
    nodes.become({}, 600.0)
    nodes.become({0: A}, HOUR)
    assert nodes.ready_s(0) == HOUR + 120.0
    nodes.close(HOUR + 1.0)
    assert nodes.cost == pytest.approx(2.0)
    assert nodes.gpu_s == pytest.approx(HOUR + 1.0), (
        "the first was there until its minimum was over"
    )


def test_another_type_is_no_use_and_idle_nodes_make_room() -> None:
    nodes = renting(most=1)
    nodes.become({0: A}, 0.0)
    nodes.become({0: B}, 600.0)
    assert nodes.ready_s(0) == 720.0
    nodes.become({0: A}, 1200.0)
    assert nodes.ready_s(0) == 1320.0, "the first A had to go for B"
    nodes.close(1300.0)
    assert nodes.cost == pytest.approx(3.0)


def test_a_provider_takes_idle_nodes_back_too() -> None:
    nodes = renting(until_s=900.0)
    nodes.become({0: A}, 0.0)
    nodes.become({}, 600.0)
    nodes.become({0: B}, 1000.0)
    nodes.close(1000.0)
    assert nodes.cost == pytest.approx(2.0)
    assert nodes.gpu_s == 900.0
