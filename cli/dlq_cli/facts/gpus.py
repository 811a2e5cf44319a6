"""Every GPU of some nodes as plain values: its job, its health, its last measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dlq.v1 import node_pb2, resource_pb2
from dlq_cli.facts.cluster import status_facts
from dlq_cli.facts.common import Facts
from dlq_cli.words import NODE_STATES


class Row(NamedTuple):
    """One GPU of a node, with its known state."""

    node: node_pb2.Node
    gpu: resource_pb2.Gpu
    status: node_pb2.GpuStatus


def rows_of(nodes: Iterable[node_pb2.Node]) -> Iterator[Row]:
    """The GPUs of these nodes; those of an older master are `unknown`."""
    for node in nodes:
        told = {status.index: status for status in node.gpu_statuses}
        for gpu in node.gpus:
            yield Row(
                node,
                gpu,
                told.get(gpu.index) or node_pb2.GpuStatus(index=gpu.index, state="unknown"),
            )


def gpu_facts(row: Row) -> Facts:
    """One GPU as plain values; unknown is null."""
    node, gpu, status = row
    return {
        "node_id": node.node_id,
        "node_state": NODE_STATES.get(node.state) or "unknown",
        "index": gpu.index,
        "uuid": gpu.uuid or None,
        "gpu_type": gpu.gpu_type,
        "memory_bytes": gpu.memory_bytes,
        "virtual": node.virtual_devices,
        **status_facts(status),
    }
