"""The sizes of an elastic job and the estimate of its run time, as plain values."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts, seconds


def elastic_facts(elastic: job_pb2.Elasticity) -> Facts:
    """The numbers of GPUs that suit the job, and its present number; null: no GPUs, or no change is
    on its way.
    """
    return {
        "gpu_counts": list(elastic.gpu_counts),
        "base_gpu_count": elastic.gpu_counts[0],
        "current_gpu_count": elastic.current_gpu_count or None,
        "next_gpu_count": elastic.next_gpu_count or None,
        "resize": elastic.resize,
        "resize_count": elastic.resize_count,
        "speeds": [
            {
                "gpu_count": each.gpu_count,
                "steps_per_second": each.steps_per_second,
                "relative_speed": each.relative_speed or None,
                "gpu_type": each.gpu_type,
            }
            for each in elastic.speeds
        ],
    }


def elastic_spec_facts(elastic: job_pb2.ElasticSpec) -> Facts:
    """What was submitted."""
    return {"gpu_counts": list(elastic.gpu_counts), "resize": elastic.resize or None}


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
