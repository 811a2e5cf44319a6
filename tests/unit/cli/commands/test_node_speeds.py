"""The speeds of GPU types as `dlq nodes` shows them."""

from __future__ import annotations

from dlq.v1 import node_pb2
from dlq_cli.commands.cluster.nodes import gpu_types, labels, measured_speeds, step_times
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


def test_step_times_against_peers_have_a_line_and_a_suspect_has_a_note() -> None:
    assert step_times(a_node("n1")) == ""
    score = node_pb2.NodeStraggler(
        excess_percent=10.25,
        confidence=0.999,
        step_count=240,
        gang_count=1,
        words="rank 2 of job 7",
    )
    node = a_node("n1", straggler=score)
    line = "+10.2 % against its peers, over 240 steps of 1 gang; rank 2 of job 7"
    assert step_times(node) == line
    assert "suspected straggler" not in labels(node)
    node.straggler.suspected = True
    assert step_times(node) == f"suspected straggler: {line}"
    assert "suspected straggler" in labels(node)
    assert node_facts(node)["straggler"]["gang_count"] == 1
    assert node_facts(a_node("n1"))["straggler"] is None
