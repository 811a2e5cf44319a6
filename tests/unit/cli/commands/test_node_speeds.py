"""The speeds of GPU types as `dlq nodes` shows them."""

from __future__ import annotations

from dlq_cli.commands.cluster.nodes import gpu_types, measured_speeds
from dlq_cli.facts.cluster import node_facts
from support.wire_jobs import a_node


def test_a_declared_speed_stands_behind_its_type() -> None:
    assert gpu_types(a_node("n1")) == "4 x h100-80gb"
    slow = a_node("n1", declared_gpu_speeds={"h100-80gb": 0.3, "t4-16gb": 0.1})
    assert gpu_types(slow) == "4 x h100-80gb (speed 0.3)"


def test_a_measured_speed_has_a_line_of_its_own() -> None:
    assert measured_speeds(a_node("n1")) == ""
    node = a_node("n1", measured_gpu_speeds={"t4-16gb": 0.25, "a100-40gb": 0.5})
    assert measured_speeds(node) == "a100-40gb 0.5, t4-16gb 0.25"


def test_scripts_find_both() -> None:
    told = node_facts(a_node("n1", declared_gpu_speeds={"t4": 0.5}))
    assert told["declared_gpu_speeds"] == {"t4": 0.5}
    assert told["measured_gpu_speeds"] == {}
