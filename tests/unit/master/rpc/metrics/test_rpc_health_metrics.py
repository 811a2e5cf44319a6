"""Figures for alerts: who fails, how long nodes are silent, GPUs that are unwell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlq_master.control.forecast.helper_health import MANY
from dlq_master.control.placement.state import PlanFault
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.gpu_health import Action, GpuCondition
from dlq_master.rpc.metrics.health import health_families
from dlq_master.store.batch import Batch
from support.master_harness import Master
from support.metric_pages import page_of, told
from support.sim_agent import SimAgent


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    SimAgent(master, NodeId("gpu01")).hello()
    yield master
    master.close()


def figures(master: Master, later_s: float = 0.0) -> dict[str, float]:
    read = master.loop.published
    found = told(health_families(read, master.clock.now_s() + later_s))
    return page_of(read) | found


def test_a_helper_is_red_after_some_failures_in_a_row_and_green_after_an_answer(
    master: Master,
) -> None:
    health = master.state.forecast.twin_health
    for count in range(1, MANY):
        health.failed("it crashed", 10.0 + count)
        assert figures(master)['dlq_helper_ok{helper="twin"}'] == 1
    health.failed("it hangs", 20.0)
    seen = figures(master)
    assert seen['dlq_helper_failures{helper="twin"}'] == MANY
    assert seen['dlq_helper_ok{helper="twin"}'] == 0
    assert seen['dlq_helper_ok{helper="planner"}'] == 1
    assert health.told()[1:] == (MANY, 11.0, "it hangs")
    health.answered()
    assert figures(master)['dlq_helper_failures{helper="twin"}'] == 0


def test_a_policy_that_raises_at_every_plan_is_red(master: Master) -> None:
    master.state.placement.fault = PlanFault("here", "KeyError: 7", 5.0, MANY, 60.0)
    assert figures(master)['dlq_helper_ok{helper="policy"}'] == 0


def test_nodes_that_are_silent_gpus_that_are_unwell_and_a_late_loop(master: Master) -> None:
    before = figures(master)
    assert before["dlq_gpus_unhealthy"] == 0
    silent_s = before["dlq_node_silent_seconds_max"]
    assert figures(master, later_s=90.0)["dlq_node_silent_seconds_max"] == silent_s + 90
    node = master.loop.published.node(NodeId("gpu01"))
    assert node is not None
    wrong = (
        GpuCondition(1, "xid_79", Action.DRAIN, 1.0),
        GpuCondition(1, "too_hot", Action.MONITOR, 2.0),
    )
    master.loop.published.publish(Batch(nodes=[node._replace(conditions=wrong)]))
    master.state.loop_lag_s = 2.5
    assert before["dlq_requeues_frozen"] == 0
    master.state.frozen = True
    seen = figures(master)
    assert seen["dlq_requeues_frozen"] == 1
    assert (seen["dlq_gpus_unhealthy"], seen["dlq_loop_lag_seconds"]) == (1, 2.5)
    master.loop.published.publish(Batch(nodes=[node]))  # as on disk
