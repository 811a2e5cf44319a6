"""How a job communicates, as plain values."""

from __future__ import annotations

from dlq.v1 import profile_pb2
from dlq_cli.facts.common import Facts, facts_of


def traffic_facts(traffic: profile_pb2.JobTraffic) -> Facts:
    """The traffic estimate and its source; the same keys for every job."""
    return {
        "belief": belief_facts(traffic.belief) if traffic.HasField("belief") else None,
        "starts": [start_facts(start) for start in traffic.starts],
        **facts_of(traffic, "placement? placement_reason?"),
    }


def belief_facts(belief: profile_pb2.TrafficBelief) -> Facts:
    """Figures of one start, and which it was."""
    figures = """
        bytes_per_iteration model_bytes skew_low skew_high server_skew rho slowdown
        together_attempt? spread_attempt?
    """
    start = "job_id attempt own family gpu_type? gpu_count node_count spread found_time"
    return {
        **facts_of(belief, start),
        "traffic": verdict_facts(belief.traffic),
        "sizes": verdict_facts(belief.sizes),
        **facts_of(belief, f"iteration_count period_s {figures}"),
    }


def start_facts(start: profile_pb2.RecordedStart) -> Facts:
    """A start that was recorded, or is to be."""
    has = start.HasField
    return {
        **facts_of(start, "attempt cause order_time node_count told_count spread found_time"),
        "traffic": verdict_facts(start.traffic) if has("traffic") else None,
        "sizes": verdict_facts(start.sizes) if has("sizes") else None,
    }


def verdict_facts(verdict: profile_pb2.ProfileVerdict) -> Facts:
    """A verdict as in the schema dlq.profile.v1."""
    return facts_of(verdict, "method confidence reason?")
