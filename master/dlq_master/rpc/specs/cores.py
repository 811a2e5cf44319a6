"""Jobs without GPUs, on the wire: their cores, and the fields that they cannot have."""

from __future__ import annotations

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import refused
from dlq_common.job_fields.reading.words import PER_GPU

MOST_CORES = 100_000


def is_without_gpus(asked: ResourceRequest) -> bool:
    """Whether the job gets cores of its own, and no GPU."""
    return asked.core_count != 0


def check_cores(spec: JobSpec) -> None:
    """InvalidRequest names a field that is wrong for such a job, or that needs GPUs."""
    asked = spec.resources
    if not 1 <= asked.core_count <= MOST_CORES:
        raise refused("resources.core_count", f"must be between 1 and {MOST_CORES}")
    if asked.gpu_count:
        raise refused(
            "resources.core_count",
            f"is for jobs without GPUs, and {asked.gpu_count} GPUs are asked for: cpu_limit says "
            "the cores of a job with GPUs",
        )
    if asked.HasField("node_count"):
        if asked.node_count < 1:
            raise refused("resources.node_count", "must be at least 1")
        if asked.core_count % asked.node_count:
            raise refused(
                "resources.node_count",
                f"{asked.core_count} cores cannot be split evenly over {asked.node_count} nodes",
            )
    elif asked.HasField("memory_limit_bytes"):
        raise refused(
            "resources.memory_limit_bytes",
            "is that of each node, and the number of nodes of this job without GPUs is not said: "
            "give node_count, or core_memory_bytes",
        )
    for field, said in _of_gpus(spec).items():
        if said:
            raise InvalidRequest(f"a job without GPUs has no {field}", field=f"spec.{field}")


def _of_gpus(spec: JobSpec) -> dict[str, bool]:
    """The fields that only jobs with GPUs may have, and whether this job has them."""
    asked = spec.resources
    return {
        "resources.gpu_type": bool(asked.gpu_type or asked.or_gpu_types),
        "resources.gpu_memory_bytes": asked.HasField("gpu_memory_bytes"),
        "resources.halves_batch": asked.halves_batch,
        "resources.mixed_gpu_types": asked.mixed_gpu_types,
        "elastic": spec.HasField("elastic"),
        "roles": spec.HasField("roles"),
        "launch": spec.launch == PER_GPU,
        "deadlines": bool(spec.deadlines),
        "lateness": spec.HasField("lateness"),
        "profile": spec.profile == "yes",
    }
