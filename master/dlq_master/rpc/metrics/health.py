"""Figures for alerts in `/metrics`: failures, the silence of nodes, GPUs that are unwell, and the
delay of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlq_master.control.read_model.published import Published
from dlq_master.model.nodes.node import NodeState
from dlq_master.rpc.metrics.metrics import Labels, family, gauge


def health_lines(read: Published, now_s: float) -> Iterator[str]:
    """All families, one sample a line."""
    yield from _helpers(read)
    incidents = read.incidents()
    words = (
        "Kinds of requests and messages, by sender, on which the master has failed through a "
        "fault of its own."
    )
    yield from gauge("dlq_incidents", words, len(incidents))
    refused = sum(one.until_s > now_s for one in incidents)
    words = "Of those, how many are refused at present."
    yield from gauge("dlq_incidents_refused", words, refused)
    # Nodes that this start has not heard yet have no figure; dlq_nodes counts those that are down.
    nodes = [node for node in read.nodes() if node.state is not NodeState.DOWN]
    heard = [read.contact_s(node.node_id) for node in nodes]
    silences = [max(0.0, now_s - heard_s) for heard_s in heard if heard_s is not None]
    words = "Since the node was heard that has been silent for longest, of those that are not down."
    yield from gauge("dlq_node_silent_seconds_max", words, max(silences, default=0.0))
    unwell = sum(len({one.gpu for one in node.conditions}) for node in nodes)
    words = "GPUs of nodes that are not down with which something is wrong (dlq gpus)."
    yield from gauge("dlq_gpus_unhealthy", words, unwell)
    yield from gauge("dlq_loop_lag_seconds", "How late the last turn came.", read.loop_lag_s())


def _helpers(read: Published) -> Iterator[str]:
    helpers = read.helpers()
    failures: dict[Labels, float] = {(("helper", one.name),): one.failures for one in helpers}
    words = "Failures in a row of the planner, the twin and the policy."
    yield from family("dlq_helper_failures", "gauge", words, failures)
    fine: dict[Labels, float] = {(("helper", one.name),): not one.failing for one in helpers}
    words = "1, or 0 while it fails time after time."
    yield from family("dlq_helper_ok", "gauge", words, fine)
