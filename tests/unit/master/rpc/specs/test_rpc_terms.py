"""A spec that is checked by its parts is the spec that is checked as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_master.control.stimuli import Caller
from dlq_master.rpc.specs.intake import job_stimulus
from dlq_master.rpc.specs.spec import CHECKS, PROGRAM, checked, known_parts
from dlq_master.rpc.specs.terms import LARGEST_BYTES, KnownTerms

ANN = Caller("ann", "user")


def spec_of(text: str = "true", **more: Any) -> JobSpec:
    spec = JobSpec(command=["/bin/echo", text], environment={"N": text}, **more)
    if not spec.resources.core_count:
        spec.resources.gpu_count = spec.resources.gpu_count or 2
    return spec


def gpus(count: int) -> ResourceRequest:
    return ResourceRequest(gpu_count=count)


GOOD = [
    spec_of(),
    spec_of(name="named", labels={"family": "f"}, working_directory="/tmp"),
    spec_of(compat="slurm", tasks_per_node=1, nice=3, hold=True),
    spec_of(array={"ranges": [{"first": 1, "last": 4}]}),
    spec_of(container={"image": "docker.io/busybox:1"}, runtime="podman"),
    spec_of(preempt={"signal": "USR1", "requeue_exit_codes": [3]}),
    spec_of(resources={"core_count": 2}),
    spec_of(elastic={"gpu_counts": [2, 4]}),
    JobSpec(script="#!/bin/sh\ntrue\n", resources=gpus(1)),
]
BAD = [
    spec_of(name="a\nb"),
    spec_of(nice=10**9),
    spec_of(compat="nobody"),
    spec_of(origin={"session_number": -1}),
    spec_of(runtime="nobody"),
    JobSpec(resources=gpus(1)),
    JobSpec(command=["true"], resources=gpus(-1)),
    JobSpec(name="a\nb", command=["true"], resources=gpus(-1)),
]


@pytest.mark.parametrize("spec", GOOD)
def test_by_its_parts_it_is_the_same(spec: JobSpec) -> None:
    found = KnownTerms(lambda filled, _: filled.working_directory).of(known_parts(spec))
    whole = checked(spec)
    if spec.HasField("elastic"):
        assert found is None
    else:
        assert found is not None
        assert found[0].SerializeToString(deterministic=True) == whole.SerializeToString(
            deterministic=True
        )
    submission = job_stimulus(spec, ANN, "r", brief=True)
    assert submission.spec == whole.SerializeToString(deterministic=True)
    assert (submission.name, submission.caller, submission.request_id) == (whole.name, ANN, "r")


@pytest.mark.parametrize("spec", BAD)
def test_a_refusal_is_that_of_the_whole(spec: JobSpec) -> None:
    with pytest.raises(InvalidRequest) as whole:
        checked(spec)
    for _ in range(2):
        with pytest.raises(InvalidRequest) as found:
            job_stimulus(spec, ANN, "r", brief=True)
        assert (found.value.what, found.value.metadata) == (whole.value.what, whole.value.metadata)


def test_terms_are_read_once_and_a_program_each_time() -> None:
    read: list[JobSpec] = []
    terms = KnownTerms(lambda filled, _: read.append(filled))
    specs = [terms.of(spec_of(str(number), name=f"n{number}")) for number in range(3)]
    assert len(read) == 1
    assert [found[0].name for found in specs if found is not None] == ["n0", "n1", "n2"]
    assert terms.of(spec_of("x", nice=1)) is not None
    assert len(read) == 2


def test_large_terms_are_not_kept() -> None:
    read: list[JobSpec] = []
    terms = KnownTerms(lambda filled, _: read.append(filled))
    labels = {f"l{number}": "x" * 200 for number in range(LARGEST_BYTES // 200)}
    for _ in range(2):
        assert terms.of(spec_of(labels=labels)) is not None
    assert len(read) == 2


def test_no_check_looks_at_a_program_and_at_terms() -> None:
    assert all(not check.fields & PROGRAM or check.fields <= PROGRAM for check in CHECKS)
