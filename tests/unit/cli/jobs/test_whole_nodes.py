"""Requests for all of a node: --exclusive and --mem=0."""

import pytest

from dlq.v1 import node_pb2, resource_pb2
from dlq_cli.jobs.whole_nodes import take_all_cores
from dlq_cli.output.said import SlurmSays


def node(name: str, cores: int, gpus: int) -> node_pb2.Node:
    made = node_pb2.Node(node_id=name, job_core_count=cores)
    for _ in range(gpus):
        made.gpus.add(gpu_type="h100")
    return made


def test_all_memory_takes_the_cores_of_jobs_without_gpus_and_no_gpu() -> None:
    request = resource_pb2.ResourceRequest(core_count=2, node_count=2)
    take_all_cores(request, [node("a", 16, 8), node("b", 16, 8), node("c", 0, 8)])
    assert (request.core_count, request.node_count, request.gpu_count) == (32, 2, 0)


def test_nodes_that_differ_are_told_with_the_option_that_says_how_many() -> None:
    request = resource_pb2.ResourceRequest(core_count=2, node_count=1)
    with pytest.raises(SlurmSays, match=r"--mem=0: nodes have 16 or 32 cores: .*-c"):
        take_all_cores(request, [node("a", 16, 8), node("b", 32, 0)])
