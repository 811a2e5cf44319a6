"""--exclusive: the request becomes all of its nodes."""

from __future__ import annotations

import pytest

from dlq.v1 import node_pb2, resource_pb2
from dlq_cli.jobs.whole_nodes import take_whole_nodes
from dlq_cli.output.said import SlurmSays


def a_node(name: str, *, gpus: int = 0, kind: str = "h100-80gb", cores: int = 0) -> node_pb2.Node:
    each = [resource_pb2.Gpu(index=at, gpu_type=kind) for at in range(gpus)]
    return node_pb2.Node(node_id=name, gpus=each, job_core_count=cores)


EVEN = [a_node("a", gpus=8, cores=4), a_node("b", gpus=8, cores=4)]


def taken(nodes: list[node_pb2.Node], **asked: object) -> tuple[int, int, int]:
    """GPUs, cores and nodes."""
    request = resource_pb2.ResourceRequest(**asked)  # type: ignore[arg-type]  # by name
    take_whole_nodes(request, nodes)
    return request.gpu_count, request.core_count, request.node_count


def test_all_gpus_of_each_node_are_asked_for() -> None:
    assert taken(EVEN, gpu_count=2, node_count=2) == (16, 0, 2)
    assert taken(EVEN, gpu_count=9, node_count=1) == (16, 0, 2)
    assert taken(EVEN, core_count=1, node_count=1) == (8, 0, 1)  # as Slurm: GPUs and all


def test_without_gpus_nodes_without_any_are_taken_first() -> None:
    nodes = [*EVEN, a_node("c", cores=32)]
    assert taken(nodes, core_count=3, node_count=1) == (0, 32, 1)
    assert taken(nodes, core_count=33, node_count=1) == (0, 64, 2)


def test_nodes_that_differ_are_refused_unless_the_job_names_some_that_do_not() -> None:
    nodes = [*EVEN, a_node("d", gpus=4, kind="a100-40gb")]
    with pytest.raises(SlurmSays, match="nodes have 4 or 8 GPUs"):
        taken(nodes, gpu_count=1, node_count=1)
    assert taken(nodes, gpu_count=1, node_count=1, gpu_type="a100") == (4, 0, 1)
    assert taken(nodes, gpu_count=1, node_count=1, node_ids=["d"]) == (4, 0, 1)
    with pytest.raises(SlurmSays, match="nodes have no GPUs"):
        taken([], gpu_count=1, node_count=1)
