"""Figures for alerts in `/metrics`: failures, the silence of nodes, GPUs that are unwell, and the
delay of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlq_master.control.read_model.ports import ReadModel
from dlq_master.model.nodes.node import NodeState
from dlq_master.rpc.metrics.metrics import Labels, family


def health_lines(read: ReadModel, now_s: float) -> Iterator[str]:
    """All families, one sample a line."""
    yield from _helpers(read)
    yield from _incidents(read, now_s)
    yield from _silence(read, now_s)
    words = "GPUs of nodes that are not down with which something is wrong (dlq gpus)."
    unwell: dict[Labels, float] = {(): sum(_unwell(read))}
    yield from family("dlq_gpus_unhealthy", "gauge", words, unwell)
    lag: dict[Labels, float] = {(): read.loop_lag_s()}
    yield from family("dlq_loop_lag_seconds", "gauge", "How late the last turn came.", lag)


def _helpers(read: ReadModel) -> Iterator[str]:
    told = read.helpers()
    failures: dict[Labels, float] = {(("helper", one.name),): one.failures for one in told}
    words = "Failures in a row of the planner, the twin and the policy."
    yield from family("dlq_helper_failures", "gauge", words, failures)
    fine: dict[Labels, float] = {(("helper", one.name),): not one.failing for one in told}
    words = "1, or 0 while it fails time after time."
    yield from family("dlq_helper_ok", "gauge", words, fine)


def _incidents(read: ReadModel, now_s: float) -> Iterator[str]:
    told = read.incidents()
    words = (
        "Kinds of requests and messages, by sender, on which the master has failed through a "
        "fault of its own."
    )
    yield from family("dlq_incidents", "gauge", words, {(): float(len(told))})
    words = "Of those, how many are refused at present."
    refused: dict[Labels, float] = {(): sum(one.until_s > now_s for one in told)}
    yield from family("dlq_incidents_refused", "gauge", words, refused)


def _silence(read: ReadModel, now_s: float) -> Iterator[str]:
    """Nodes that this start has not heard yet have no figure; dlq_nodes counts those that are
    down.
    """
    nodes = [node for node in read.nodes() if node.state is not NodeState.DOWN]
    heard = [read.contact_s(node.node_id) for node in nodes]
    silences = [max(0.0, now_s - heard_s) for heard_s in heard if heard_s is not None]
    longest: dict[Labels, float] = {(): max(silences, default=0.0)}
    words = "Since the node was heard that has been silent for longest, of those that are not down."
    yield from family("dlq_node_silent_seconds_max", "gauge", words, longest)


def _unwell(read: ReadModel) -> Iterator[int]:
    for node in read.nodes():
        if node.state is not NodeState.DOWN:
            yield len({condition.gpu for condition in node.conditions})
