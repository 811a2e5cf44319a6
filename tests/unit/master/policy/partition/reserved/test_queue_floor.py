"""The floor of a queue: GPUs that are kept free for its jobs. Nodes have 8 GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.partition.quotas import QueueFloor, parsed_floor
from dlq_master.policy.promise.capacity.grids import grid_of
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from support.builders import H100, World, a_job, a_request

BEHIND = 201  # the place of a queue that is served second


def a_world(nodes: int = 2, floor: str = "interactive:4", **settings: str) -> World:
    return World("dlq", nodes, None, queue_floor=floor, be_floor="0", **settings)


def interactive(job_id: int, gpus: int) -> Job:
    return a_job(job_id, gpus, queue="interactive", priority_base=0, duration_estimate_s=3600.0)


def ordinary(job_id: int, gpus: int) -> Job:
    return a_job(job_id, gpus, queue="default", priority_base=BEHIND, duration_estimate_s=1e5)


def codes(world: World, job_id: int) -> set[ReasonCode]:
    view = View(world.cluster, world.now_s)
    return {reason.code for reason in explain(view, world.policy, JobId(job_id))}


def test_ordinary_jobs_leave_the_floor_free_and_an_interactive_job_starts_at_once() -> None:
    world = a_world().submit(*(ordinary(job_id, 2) for job_id in range(1, 11))).decide()
    assert len(world.running) == 6
    assert codes(world, 10) == {ReasonCode.KEPT_FOR_QUEUE}
    assert 20 in world.submit(interactive(20, 4)).decide().running


def test_gpus_that_interactive_jobs_hold_are_part_of_the_floor() -> None:
    world = a_world().submit(interactive(1, 3)).decide()
    world.submit(*(ordinary(job_id, 1) for job_id in range(2, 20))).decide()
    assert len(world.running) == 1 + 12
    world.finish(1).decide()
    assert len(world.running) == 12


def test_a_floor_that_is_busy_fills_as_jobs_end() -> None:
    world = World("dlq", 1, None, be_floor="0")
    world.submit(*(ordinary(job_id, 2) for job_id in range(1, 8))).decide()
    assert world.running == [1, 2, 3, 4]
    world.policy = build("dlq", {"queue_floor": "interactive:4", "be_floor": "0"})
    assert world.finish(1).decide().running == [2, 3, 4]
    assert world.finish(2).decide().running == [3, 4]
    assert world.finish(3).decide().running == [4, 5]


def test_the_floor_stays_free_at_a_boundary_too() -> None:
    world = a_world(1).submit(*(ordinary(job_id, 2) for job_id in range(1, 5))).decide()
    assert world.running == [1, 2]
    for boundary in (270.0, 570.0, 870.0):
        assert len(world.at(boundary).running) == 2


def test_elastic_jobs_do_not_grow_into_the_floor() -> None:
    world = a_world(1)
    elastic = replace(a_request(2), sizes=(2, 4, 8))
    job = ordinary(1, 2)._replace(request=elastic, speeds=(1.0, 2.0, 4.0))
    world.submit(job).decide()
    assert world.attempt(1).lease.allocation.width == 4


def test_interactive_jobs_leave_last() -> None:
    world = a_world(2, min_run="off", hysteresis="off")
    world.submit(interactive(1, 8), ordinary(2, 8)).decide()
    world.submit(ordinary(3, 8)._replace(duration_estimate_s=60.0)).at(270.0)
    assert world.leaving == [2], "the shorter job takes the GPUs of an ordinary one"
    world.leave(2).decide()
    world.submit(interactive(4, 8)).at(570.0)
    assert world.leaving == [3]


def test_a_promise_that_was_given_before_may_use_the_floor() -> None:
    world = World("dlq", 1, None, be_floor="0", guarantee="fitting", slots="early")
    world.submit(a_job(1, 8, duration_estimate_s=2000.0, steps=strict(6000.0))).decide()
    assert world.job(1).promised == 0
    world.policy = build(
        "dlq", {"queue_floor": "interactive:4", "be_floor": "0", "guarantee": "fitting"}
    )
    world.at(1170.0)
    assert world.at(1200.0).running == [1]


def test_new_promises_leave_the_floor_out() -> None:
    world = a_world(4, "interactive:10")
    assert world.policy.promises is not None
    assert grid_of(world.cluster, H100, world.policy.promises, 0).at(0) == 16


def test_a_slot_holder_starts_beside_the_floor_where_there_is_other_room() -> None:
    world = a_world(2, "interactive:8", guarantee="fitting", slots="early")
    world.submit(a_job(1, 4, duration_estimate_s=2000.0, steps=strict(9000.0))).decide()
    world.at(1170.0).at(1200.0)
    world.submit(interactive(2, 8)).decide()
    assert world.running == [1, 2]


def test_a_list_tells_the_same_reason() -> None:
    world = a_world(1).submit(*(ordinary(job_id, 4) for job_id in (1, 2))).decide()
    summary = ReasonSummary(View(world.cluster, world.now_s), world.policy)
    assert ReasonCode.KEPT_FOR_QUEUE in {kind.code for kind in summary.kinds(world.job(2))}


@pytest.mark.parametrize(
    ("text", "total", "gpus"),
    [("interactive:8", 100, 8), ("interactive:0.05", 100, 5), ("a:b:0.01", 150, 2)],
)
def test_a_floor_is_a_number_of_gpus_or_a_share(text: str, total: int, gpus: int) -> None:
    floor = parsed_floor(text)
    assert floor.gpus(total) == gpus
    assert floor == QueueFloor(text.rpartition(":")[0], floor.amount)


@pytest.mark.parametrize("text", ["8", ":8", "interactive:", "interactive:1.5", "interactive:-1"])
def test_a_wrong_floor_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="queue_floor"):
        build("dlq", {"queue_floor": text})
