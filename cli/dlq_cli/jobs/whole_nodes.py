"""Slurm's `--exclusive`: all GPUs of the nodes, or all cores of nodes without GPUs.

And `--mem=0`: all cores that nodes have for jobs without GPUs, since memory comes with them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq.v1 import node_pb2, resource_pb2
from dlq_cli.output.said import SlurmSays

_FAILED = (
    "sbatch: error: Batch job submission failed: Requested node configuration is not available"
)


def take_whole_nodes(
    resources: resource_pb2.ResourceRequest, nodes: Iterable[node_pb2.Node]
) -> None:
    """Raise the request to all GPUs of its nodes, or all cores. SlurmSays: nodes differ."""
    usable = [node for node in nodes if _may_run(resources, node)]
    bare = [node for node in usable if not node.gpus and node.job_core_count]
    if not resources.gpu_count and bare:
        _take_cores(resources, bare, "--exclusive")
        return
    with_gpus = [node for node in usable if node.gpus]
    width = _one({len(node.gpus) for node in with_gpus}, "GPUs", "--exclusive", "--gpus-per-node")
    count = _count(resources, resources.gpu_count, width)
    resources.core_count = 0
    resources.ClearField("core_memory_bytes")
    resources.gpu_count = width * count


def take_all_cores(resources: resource_pb2.ResourceRequest, nodes: Iterable[node_pb2.Node]) -> None:
    """Raise the request to all cores that its nodes have for jobs without GPUs. SlurmSays: nodes
    differ.
    """
    usable = [node for node in nodes if _may_run(resources, node) and node.job_core_count]
    _take_cores(resources, usable, "--mem=0")


def _take_cores(
    resources: resource_pb2.ResourceRequest, nodes: Iterable[node_pb2.Node], asked: str
) -> None:
    width = _one({node.job_core_count for node in nodes}, "cores", asked, "-c")
    resources.core_count = width * _count(resources, resources.core_count, width)


def _may_run(resources: resource_pb2.ResourceRequest, node: node_pb2.Node) -> bool:
    """Whether the job's choice of nodes and types allows this node."""
    types = {gpu.gpu_type for gpu in node.gpus}
    wanted = [resources.gpu_type, *resources.or_gpu_types] if resources.gpu_type else []
    return (
        node.node_id not in resources.excluded_node_ids
        and (not resources.node_ids or node.node_id in resources.node_ids)
        and all(node.labels.get(key) == value for key, value in resources.constraint.items())
        and (not wanted or any(kind.startswith(each) for kind in types for each in wanted))
    )


def _count(resources: resource_pb2.ResourceRequest, asked: int, width: int) -> int:
    """The number of nodes: as many as it names, and as its request needs."""
    count = max(1, resources.node_count, -(-asked // width))
    resources.node_count = count
    return count


def _one(widths: set[int], what: str, asked: str, option: str) -> int:
    if len(widths) == 1:
        return widths.pop()
    have = " or ".join(map(str, sorted(widths))) or "no"
    raise SlurmSays(
        _FAILED, f"  {asked}: nodes have {have} {what}: say how many of each, by {option}"
    )
