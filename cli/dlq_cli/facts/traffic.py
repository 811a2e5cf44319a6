"""How a job communicates, as plain values."""

from __future__ import annotations

from typing import Literal

from dlq.v1 import profile_pb2
from dlq_cli.facts.common import Facts, instant, seconds

_Figure = Literal[
    "bytes_per_iteration", "model_bytes", "skew_low", "skew_high", "server_skew", "rho", "slowdown"
]
_FIGURES: tuple[_Figure, ...] = (
    "bytes_per_iteration",
    "model_bytes",
    "skew_low",
    "skew_high",
    "server_skew",
    "rho",
    "slowdown",
)


def traffic_facts(traffic: profile_pb2.JobTraffic) -> Facts:
    """The traffic estimate and its source; the same keys for every job."""
    return {
        "belief": belief_facts(traffic.belief) if traffic.HasField("belief") else None,
        "starts": [start_facts(start) for start in traffic.starts],
        "placement": traffic.placement or None,
        "placement_reason": traffic.placement_reason or None,
    }


def belief_facts(belief: profile_pb2.TrafficBelief) -> Facts:
    """Figures of one start, and which it was."""
    has = belief.HasField
    return {
        "job_id": belief.job_id,
        "attempt": belief.attempt,
        "own": belief.own,
        "family": belief.family,
        "gpu_type": belief.gpu_type or None,
        "gpu_count": belief.gpu_count,
        "node_count": belief.node_count,
        "spread": belief.spread,
        "found_time": instant(belief.found_time) if has("found_time") else None,
        "traffic": verdict_facts(belief.traffic),
        "sizes": verdict_facts(belief.sizes),
        "iteration_count": belief.iteration_count,
        "period_s": seconds(belief.period_duration) if has("period_duration") else None,
        **{name: getattr(belief, name) if has(name) else None for name in _FIGURES},
        "together_attempt": belief.together_attempt or None,
        "spread_attempt": belief.spread_attempt or None,
    }


def start_facts(start: profile_pb2.RecordedStart) -> Facts:
    """A start that was recorded, or is to be."""
    has = start.HasField
    return {
        "attempt": start.attempt,
        "cause": start.cause,
        "order_time": instant(start.order_time),
        "node_count": start.node_count,
        "told_count": start.told_count,
        "spread": start.spread,
        "found_time": instant(start.found_time) if has("found_time") else None,
        "traffic": verdict_facts(start.traffic) if has("traffic") else None,
        "sizes": verdict_facts(start.sizes) if has("sizes") else None,
    }


def verdict_facts(verdict: profile_pb2.ProfileVerdict) -> Facts:
    """A verdict as in the schema dlq.profile.v1."""
    return {
        "method": verdict.method,
        "confidence": verdict.confidence,
        "reason": verdict.reason or None,
    }
