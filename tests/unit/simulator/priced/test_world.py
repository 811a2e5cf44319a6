"""The world of rented nodes: what is billed, who makes progress, and when it is decided."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.compared.first_principle import fifo
from dlq_master.policy.priced.situation import EMPTY, Grant, Schedule, Situation
from dlq_simulator.errors import SimulateError
from dlq_simulator.priced.instance import RentingInstance, RentingJob
from dlq_simulator.priced.world import World

HOUR = 3600.0


def catalogue(boot_s: float = 0.0, minimum_s: float = 0.0) -> Catalogue:
    """A GPU is a dollar an hour."""
    return Catalogue(
        tuple(NodeType(f"A{g}", "A", g, float(g), boot_s, minimum_s) for g in (1, 2, 4))
    )


def job(name: str, submit_s: float, due_s: float, *hours: float) -> RentingJob:
    return RentingJob(name, submit_s, due_s, 0.001, np.array([hours]) * HOUR)


def two() -> tuple[RentingJob, RentingJob]:
    return job("a", 0, 3 * HOUR, 4, 2, 1.5, 1), job("b", HOUR, 9 * HOUR, 3, 1.5, 1, 0.75)


def test_nodes_are_billed_while_they_are_rented_and_lateness_by_its_weight() -> None:
    bill = World(RentingInstance(two(), catalogue(), 1), fifo, interval_s=math.inf).run()
    # a on 2 GPUs for 2 h; then b, for which there was no node, on 1 for 3 h.
    assert bill.finish_s == {0: 2 * HOUR, 1: 5 * HOUR}
    assert (bill.nodes, bill.tardiness) == (2 * 2 + 3, 0)
    late = RentingInstance((two()[0]._replace(due_s=HOUR / 2),), catalogue(), 1)
    bill = World(late, fifo, interval_s=math.inf).run()
    assert (bill.nodes, bill.late_s) == (4, HOUR / 2)
    assert bill.total == pytest.approx(4 + 0.001 * HOUR / 2)


def test_a_node_boots_at_the_renters_cost_and_has_a_minimum() -> None:
    booting = RentingInstance(two()[:1], catalogue(boot_s=600), 1)
    bill = World(booting, fifo, interval_s=math.inf).run()
    assert bill.finish_s == {0: 2 * HOUR + 600}
    assert bill.nodes == pytest.approx(2 * (2 + 1 / 6))
    assert bill.ways[0].overhead_s == 600
    bill = World(
        RentingInstance(two()[:1], catalogue(minimum_s=3 * HOUR), 1), fifo, interval_s=math.inf
    ).run()
    assert bill.nodes == 2 * 3


def test_nothing_is_rented_while_nobody_is_there() -> None:
    apart = RentingInstance((two()[0], job("b", 10 * HOUR, 99 * HOUR, 3, 2, 2, 2)), catalogue(), 1)
    bill = World(apart, fifo, interval_s=math.inf).run()
    assert bill.nodes == 4 + 3
    assert bill.decisions == 2


def grows(situation: Situation, draw: np.random.Generator) -> Schedule:
    """One GPU in the first hour, then two, on another node."""
    if not situation.jobs:
        return EMPTY
    late = situation.now_s >= HOUR
    return Schedule({0: 1 if late else 0}, {situation.jobs[0].key: Grant(0, 2 if late else 1)})


def test_a_job_goes_on_at_another_size_and_loses_what_a_change_takes() -> None:
    one = RentingInstance((two()[0],), catalogue(), 1)
    bill = World(one, grows, interval_s=HOUR, resume_s=60).run()
    # A quarter in the first hour; three quarters of 2 h after a minute.
    assert bill.finish_s[0] == pytest.approx(HOUR + 60 + 1.5 * HOUR)
    assert bill.nodes == pytest.approx(1 + 2 * (1.5 + 1 / 60))
    way = bill.ways[0]
    assert (way.stops, way.resizes, way.overhead_s) == (1, 1, 60)
    assert [span.gpus for span in way.spans] == [1, 2]
    assert bill.decisions == 3  # at 0, 1 and 2 h


def test_without_an_interval_only_submits_and_completions_are_reasons_to_decide() -> None:
    bill = World(RentingInstance((two()[0],), catalogue(), 1), grows, interval_s=math.inf).run()
    assert (bill.decisions, bill.finish_s[0]) == (1, 4 * HOUR)


def test_an_impossible_plan_is_an_error() -> None:
    def wrong(situation: Situation, draw: np.random.Generator) -> Schedule:
        return Schedule({0: 0}, {situation.jobs[0].key: Grant(0, 2)})

    with pytest.raises(SimulateError, match="the plan is not possible"):
        World(RentingInstance((two()[0],), catalogue(), 1), wrong).run()


def test_a_world_in_which_nothing_will_happen_is_an_error() -> None:
    def never(situation: Situation, draw: np.random.Generator) -> Schedule:
        return EMPTY

    with pytest.raises(SimulateError, match="nothing runs"):
        World(RentingInstance((two()[0],), catalogue(), 1), never, interval_s=math.inf).run()


def test_nodes_that_are_taken_back_are_left_at_that_instant() -> None:
    types = tuple(t._replace(until_s=HOUR if t.gpus == 2 else math.inf) for t in catalogue().types)
    bill = World(RentingInstance((two()[0],), Catalogue(types), 1), fifo, interval_s=math.inf).run()
    # Half is done after an hour on 2 GPUs; with one it makes its due date.
    assert [(span.end_s, span.gpus) for span in bill.ways[0].spans] == [(HOUR, 2), (3 * HOUR, 1)]
    assert bill.nodes == 2 + 2


def test_a_job_for_which_nothing_is_left_is_an_error() -> None:
    types = tuple(t._replace(until_s=HOUR) for t in catalogue().types)
    with pytest.raises(SimulateError, match="nodes that cannot be had any more"):
        World(RentingInstance((two()[0],), Catalogue(types), 1), fifo, interval_s=math.inf).run()
