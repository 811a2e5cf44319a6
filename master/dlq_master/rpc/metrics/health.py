"""Figures for alerts in `/metrics`: failures, silent nodes, queues of the master, the age of
forecasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from dlq_master.control.read_model.ports import Foresight
from dlq_master.control.read_model.published import Published
from dlq_master.model.nodes.node import NodeState
from dlq_master.planner.process import WORKING
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, family, gauge


def health_families(read: Published, now_s: float) -> Iterator[MetricFamily]:
    """Helper processes, incidents and the silence of nodes."""
    yield from _helpers(read)
    incidents = read.incidents()
    words = (
        "Kinds of requests and messages, by sender, on which the master has failed through a "
        "fault of its own."
    )
    yield gauge("dlq_incidents", words, len(incidents))
    refused = sum(one.until_s > now_s for one in incidents)
    words = "Of those, how many are refused at present."
    yield gauge("dlq_incidents_refused", words, refused)
    yield from _silence(read, now_s)
    yield gauge("dlq_loop_lag_seconds", "How late the last turn came.", read.loop_lag_s())
    about: dict[Labels, float] = {(("version", version("dlq")),): 1}
    yield family("dlq_build_info", "info", "The version of the master.", about)


def queue_families(waiting: int, foresight: Foresight, now_s: float) -> Iterator[MetricFamily]:
    """Stimuli that wait for a turn, and the age of the last forecast. No
    forecast: no age.
    """
    words = "Requests and messages that wait for a turn."
    yield gauge("dlq_inbox_depth", words, waiting)
    latest = foresight.latest
    ages: dict[Labels, float] = {} if latest is None else {(): max(0.0, now_s - latest.at_s)}
    words = "Age of the last forecast of starts; absent while nobody asks for one."
    yield family("dlq_twin_age_seconds", "gauge", words, ages)


def _silence(read: Published, now_s: float) -> Iterator[MetricFamily]:
    """The silence of nodes. Nodes not heard since the start have no figure; dlq_nodes counts those
    that are down.
    """
    nodes = [node for node in read.nodes() if node.state is not NodeState.DOWN]
    heard = [read.contact_s(node.node_id) for node in nodes]
    silences = sorted(max(0.0, now_s - heard_s) for heard_s in heard if heard_s is not None)
    longest_s = silences[-1] if silences else 0.0
    words = (
        "1 while many nodes are silent at once, or the master lags: jobs of silent nodes are not "
        "queued again."
    )
    yield gauge("dlq_requeues_frozen", words, read.requeues_frozen)
    words = "Since the node was heard that has been silent for longest, of those that are not down."
    yield gauge("dlq_node_silent_seconds_max", words, longest_s)
    ages: dict[Labels, float] = {}
    if silences:
        place = max(0, -(-len(silences) * 99 // 100) - 1)  # the nearest rank
        ages = {(("stat", "max"),): longest_s, (("stat", "p99"),): silences[place]}
    words = "Since nodes that are not down were heard: the longest time, and that of 99 of 100."
    yield family("dlq_heartbeat_age_seconds", "gauge", words, ages)


def _helpers(read: Published) -> Iterator[MetricFamily]:
    helpers = read.helpers()
    failures: dict[Labels, float] = {(("helper", one.name),): one.failures for one in helpers}
    words = "Failures in a row of the planner, the twin and the policy."
    yield family("dlq_helper_failures", "gauge", words, failures)
    fine: dict[Labels, float] = {(("helper", one.name),): not one.failing for one in helpers}
    words = "1, or 0 while it fails time after time."
    yield family("dlq_helper_ok", "gauge", words, fine)
    planner = read.planning().process
    up: dict[Labels, float] = {} if planner is None else {(): planner.state in WORKING}
    words = "1 while the planner would answer, or would be started for a question; else 0."
    yield family("dlq_planner_up", "gauge", words, up)
