"""Jobs without GPUs on the wire: what is taken, what is refused by its field, and the request."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_master.model.resources import CORE_TYPE
from dlq_master.rpc.specs.intake import request_of
from dlq_master.rpc.specs.spec import checked

GIB = 2**30


def asking(**resources: Any) -> JobSpec:
    return JobSpec(command=["true"], resources=ResourceRequest(**resources))


def test_cores_become_devices_of_a_type_of_their_own() -> None:
    request = request_of(
        checked(asking(core_count=8, node_count=2, memory_limit_bytes=4 * GIB, node_ids=["n1"]))
    )
    assert (request.gpus, request.nodes, request.gpu_type) == (8, 2, CORE_TYPE)
    assert request.memory_bytes_per_node == 4 * GIB
    assert request.among == ("n1",)
    assert (request.real_gpus, request.cores) == (0, 8)


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"core_count": 1, "gpu_count": 1}, "resources.core_count"),
        ({"core_count": -1}, "resources.core_count"),
        ({"core_count": 100_001}, "resources.core_count"),
        ({"core_count": 3, "node_count": 2}, "resources.node_count"),
        ({"core_count": 3, "node_count": 0}, "resources.node_count"),
        ({"core_count": 3, "memory_limit_bytes": GIB}, "resources.memory_limit_bytes"),
        ({"core_count": 3, "gpu_type": "h100"}, "resources.gpu_type"),
        ({"core_count": 3, "gpu_memory_bytes": GIB}, "resources.gpu_memory_bytes"),
        ({"core_count": 3, "mixed_gpu_types": True}, "resources.mixed_gpu_types"),
        ({"gpu_count": 1, "core_memory_bytes": GIB}, "resources.core_memory_bytes"),
        ({"gpu_count": 1, "gpu_type": CORE_TYPE}, "resources.gpu_type"),
        ({"gpu_count": 1, "gpu_type": "h100", "or_gpu_types": ["cpu"]}, "resources.or_gpu_types"),
        ({"gpu_count": 0}, "resources.gpu_count"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(resources: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked(asking(**resources))
    assert caught.value.field == f"spec.{field}"


@pytest.mark.parametrize("what", ["elastic", "roles", "deadlines", "lateness", "launch", "profile"])
def test_what_only_gpus_can_have_is_refused_by_name(what: str) -> None:
    spec = asking(core_count=2)
    if what == "elastic":
        spec.elastic.gpu_counts.extend([2, 4])
    elif what == "roles":
        spec.roles.worker_count = 2
    elif what == "deadlines":
        spec.deadlines.add(reward=1.0).due_duration.seconds = 3600
    elif what == "lateness":
        spec.lateness.weight_per_hour = 1.0
        spec.lateness.due_duration.seconds = 3600
    else:
        setattr(spec, what, {"launch": "per-gpu", "profile": "yes"}[what])
    with pytest.raises(InvalidRequest, match=f"a job without GPUs has no {what}"):
        checked(spec)
