"""Figures for alerts: who fails, how long nodes are silent, GPUs that are unwell; and the rules
that are shipped for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_master.control.forecast.helper_health import MANY
from dlq_master.control.loop.meter import Meter
from dlq_master.control.placement.state import PlanFault
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.gpu_health import Action, GpuCondition
from dlq_master.rpc.metrics.health import health_lines
from dlq_master.rpc.metrics.metrics import page
from dlq_master.store.batch import Batch
from support.master_harness import Master
from support.sim_agent import SimAgent

ROOT = Path(__file__).parents[5]
ALERTS = ROOT / "deploy" / "monitoring" / "alerts.yml"


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    SimAgent(master, NodeId("gpu01")).hello()
    yield master
    master.close()


def figures(master: Master, later_s: float = 0.0) -> dict[str, float]:
    lines = health_lines(master.loop.published, master.clock.now_s() + later_s)
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_a_helper_is_red_after_some_failures_in_a_row_and_green_after_an_answer(
    master: Master,
) -> None:
    health = master.state.forecast.twin_health
    for count in range(1, MANY):
        health.failed("it crashed", 10.0 + count)
        assert figures(master)['dlq_helper_ok{helper="twin"}'] == 1
    health.failed("it hangs", 20.0)
    told = figures(master)
    assert told['dlq_helper_failures{helper="twin"}'] == MANY
    assert told['dlq_helper_ok{helper="twin"}'] == 0
    assert told['dlq_helper_ok{helper="planner"}'] == 1
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
    told = figures(master)
    assert (told["dlq_gpus_unhealthy"], told["dlq_loop_lag_seconds"]) == (1, 2.5)
    master.loop.published.publish(Batch(nodes=[node]))  # as on disk


def test_every_metric_that_an_alert_names_exists_and_the_docs_name_the_rules(
    master: Master,
) -> None:
    rules = ALERTS.read_text()
    host = (ROOT / "master" / "dlq_master" / "rpc" / "metrics" / "host.py").read_text()
    text = page(master.loop.published, Meter(), health_lines(master.loop.published, 0.0))
    there = {*re.findall(r"^# TYPE (\w+)", text, re.MULTILINE), *re.findall(r'"(dlq_\w+)"', host)}
    there |= {f"{name}{end}" for name in there for end in ("_sum", "_count", "_bucket")}
    named = {
        name
        for expression in re.findall(r"expr: (.*)", rules)
        for name in re.findall(r"\bdlq_\w+", expression)
    }
    assert len(named) > 10
    assert named <= there
    for document in ("deploy/README.md", "docs/running/monitoring.md"):
        assert "deploy/monitoring/alerts.yml" in (ROOT / document).read_text()
    metrics = (ROOT / "docs" / "running" / "monitoring.md").read_text()
    assert {
        name for name in named if name.removesuffix("_sum").removesuffix("_count") not in metrics
    } == set()
