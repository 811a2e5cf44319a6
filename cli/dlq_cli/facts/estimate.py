"""How long a job is taken to run, as plain values."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts, seconds


def estimate_facts(estimate: job_pb2.RunEstimate) -> Facts:
    """The known run times, their source, and the missing parts."""
    has = estimate.HasField
    return {
        "run_s": seconds(estimate.run_duration) if has("run_duration") else None,
        "source": estimate.source or None,
        "confidence": estimate.confidence or None,
        "step_s": seconds(estimate.step_duration) if has("step_duration") else None,
        "unmeasured": estimate.unmeasured or None,
        "detail": estimate.detail,
    }
