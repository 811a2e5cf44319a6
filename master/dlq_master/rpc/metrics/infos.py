"""Series that name nodes, jobs and users at `/metrics`, if `[metrics]` asks for them.

Each has the value 1, and its labels connect names. So a site joins the figures of DCGM, which know
GPUs, with jobs: `DCGM_FI_DEV_GPU_UTIL * on (UUID) group_left (job_id) dlq_gpu_job_info`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlq_master.control.config import MetricsConfig
from dlq_master.control.read_model.node_tally import NodeSeen
from dlq_master.control.read_model.published import Published
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, family


def info_families(read: Published, config: MetricsConfig) -> Iterator[MetricFamily]:
    """The configured series: O(nodes), and O(held GPUs)."""
    if not (config.node_info or config.job_info):
        return
    read.node_sums()  # it looks at the nodes that have changed
    if config.node_info:
        found = {_node(seen): 1.0 for seen in read.node_tally.seen()}
        yield family("dlq_node_info", "info", "Nodes by name.", found)
    if config.job_info:
        held = {one: 1.0 for seen in read.node_tally.seen() for one in _held(read, seen)}
        words = "Held GPUs with the jobs that hold them; UUID as DCGM spells it."
        yield family("dlq_gpu_job_info", "info", words, held)


def _node(seen: NodeSeen) -> Labels:
    node = seen.node
    return (
        ("agent_version", node.agent_version),
        ("gpu_types", "+".join(sorted({gpu.gpu_type for gpu in node.gpus}))),
        ("hostname", node.hostname),
        ("node", node.node_id),
        ("pool", node.pool.value),
    )


def _held(read: Published, seen: NodeSeen) -> Iterator[Labels]:
    uuids = seen.node.uuids
    for gpu, key in seen.held.items():
        owner = read.job(key.job_id)
        if owner is None:
            continue
        yield (
            ("UUID", uuids.get(gpu, "")),
            ("attempt", str(key.number)),
            ("gpu", str(gpu)),
            ("job_id", str(key.job_id)),
            ("node", seen.node.node_id),
            ("team", owner.team),
            ("user", owner.user),
        )
