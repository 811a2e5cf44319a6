"""On how many GPUs an elastic job runs, as plain values."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts


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
