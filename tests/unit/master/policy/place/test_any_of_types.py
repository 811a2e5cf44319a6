"""Jobs that may run on GPUs of any one of several types, the one that they like best first."""

from __future__ import annotations

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request, Shape
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.reasons.explain import explain
from support.builders import World, a_job, a_node

POLICIES = [
    "dlq",
    "fifo",
    "best-effort",
    "srtf",
    "aryl",
    "tiresias-las",
    "chronus",
    "gandiva-elastic",
]


def a_world(policy: str = "dlq", **settings: str) -> World:
    """Three types, which a walk sees in the order of their names."""
    return World(policy, [a_node(f"{kind}1", 4, kind.upper()) for kind in "abc"], None, **settings)


def of_types(job_id: int, gpus: int, *types: str) -> Job:
    request = Request(gpus=gpus, gpu_type=types[0], or_gpu_types=types[1:])
    return a_job(job_id, request=request, duration_estimate_s=100.0 * job_id)


def where(world: World, job_id: int) -> list[str]:
    return [str(slot.node_id) for slot in world.attempt(job_id).lease.allocation.slots]


@pytest.mark.parametrize("policy", POLICIES)
def test_it_gets_the_type_that_it_likes_best_of_those_that_have_enough(policy: str) -> None:
    world = a_world(policy)
    for number in (1, 2, 3):
        world.submit(of_types(number, 3, "C", "A")).decide()
    assert (where(world, 1), where(world, 2)) == (["c1"], ["a1"])
    assert world.running == [1, 2]
    world.finish(1).decide()
    assert where(world, 3) == ["c1"]


@pytest.mark.parametrize("policy", ["dlq", "best-effort"])
def test_all_its_gpus_are_of_one_type(policy: str) -> None:
    world = a_world(policy).submit(of_types(1, 2, "A"), of_types(2, 2, "C")).decide()
    world.submit(of_types(3, 4, "A", "C")).decide()
    assert world.running == [1, 2]
    told = explain(View(world.cluster, world.now_s), world.policy, JobId(3))
    (reason,) = [it for it in told if it.code is ReasonCode.GPU_TYPE]
    assert reason.detail == "GPUs of another type are free, but it asks for A or C"


def test_gpus_are_taken_away_for_it_only_where_it_may_run() -> None:
    world = a_world("srtf", preempt="free")
    world.submit(of_types(5, 4, "A"), of_types(6, 4, "B"), of_types(7, 4, "C")).decide()
    world.submit(of_types(1, 4, "B", "A")).decide()
    assert world.running == [1, 5, 7]
    assert where(world, 1) == ["b1"]


def test_what_no_one_of_its_types_could_hold_is_refused() -> None:
    world = a_world().submit(
        of_types(1, 5, "A", "C"), of_types(2, 1, "X", "A"), of_types(3, 1, "X", "Y")
    )
    world.decide()
    assert [world.job(number).state for number in (1, 3)] == [JobState.FAILED] * 2
    assert where(world, 2) == ["a1"]


def test_a_shape_tells_what_there_is_of_its_types_in_its_order() -> None:
    there = {"A": 1, "B": 2}
    assert list(Shape(1, None, ("B", "X", "A")).of_types(there)) == [("B", 2), ("A", 1)]
    assert list(Shape(1, None, None).of_types(there)) == [("A", 1), ("B", 2)]


def test_a_type_is_named_once_and_one_of_them_first() -> None:
    with pytest.raises(ValueError, match="named twice"):
        Request(gpus=1, gpu_type="A", or_gpu_types=("B", "A"))
    with pytest.raises(ValueError, match="none is named first"):
        Request(gpus=1, or_gpu_types=("B",))
