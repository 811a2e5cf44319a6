"""Jobs on GPUs of several types at once: they come last, under any policy that lets jobs pass each
other.
"""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps, strict
from dlq_master.model.resources import Request
from support.builders import World, a_job, a_node

POLICIES = ["dlq", "best-effort", "aryl", "tiresias-las"]


def a_world(policy: str = "dlq") -> World:
    return World(policy, [a_node("h1", 4, "H100"), a_node("a1", 4, "A100")])


def mixed(job_id: int, gpus: int, run_s: float = 100.0, steps: Steps = BEST_EFFORT) -> Job:
    request = Request(gpus=gpus, mixed=True)
    return a_job(job_id, request=request, duration_estimate_s=run_s, steps=steps)


def where(world: World, job_id: int) -> dict[str, int]:
    slots = world.attempt(job_id).lease.allocation.slots
    return {str(slot.node_id): slot.mask.bit_count() for slot in slots}


@pytest.mark.parametrize("policy", POLICIES)
def test_it_takes_several_types_where_no_one_has_enough(policy: str) -> None:
    world = a_world(policy).submit(mixed(1, 6)).decide()
    assert sorted(where(world, 1)) == ["a1", "h1"]
    assert sum(where(world, 1).values()) == 6


def test_one_type_that_has_enough_is_better() -> None:
    world = a_world().submit(mixed(1, 4)).decide()
    assert len(where(world, 1)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_everybody_else_comes_first(policy: str) -> None:
    """Though it stood before them, and is the shortest."""
    late = [a_job(number, 2, duration_estimate_s=9000.0) for number in (2, 3)]
    world = a_world(policy).submit(mixed(1, 6), *late).decide()
    assert world.running == [2, 3]
    world.finish(2).decide()
    assert world.running == [1, 3]


def test_who_does_not_take_several_types_waits_for_one() -> None:
    world = a_world().submit(a_job(1, 4), a_job(2, 1)).decide()
    world.submit(a_job(3, 4)).decide()
    assert world.running == [1, 2]
    assert world.submit(mixed(4, 3)).decide().running == [1, 2, 4]


def test_what_all_types_together_could_never_hold_is_refused() -> None:
    world = a_world().submit(mixed(1, 9), a_job(2, 5)).decide()
    assert [world.job(number).state for number in (1, 2)] == [JobState.FAILED] * 2


def test_it_leaves_all_of_its_gpus_for_who_ranks_before_it() -> None:
    world = a_world().submit(mixed(1, 8, 90_000.0)).at(10.0)
    world.submit(a_job(2, 4, duration_estimate_s=60.0)).at(270.0)
    assert world.leaving == [1]
    world.now_s = 300.0
    assert world.leave(1).decide().running == [2]


def test_a_deadline_is_promised_to_nobody_who_names_no_type_and_it_runs_all_the_same() -> None:
    world = a_world().submit(mixed(1, 6, steps=strict(9000.0))).decide()
    assert (world.running, world.job(1).promised) == ([1], None)


def test_where_nobody_passes_who_stands_first_no_types_are_mixed() -> None:
    world = a_world("fifo").submit(mixed(1, 6)).decide()
    assert world.running == []


def test_it_names_neither_a_type_nor_a_number_of_nodes() -> None:
    with pytest.raises(ValueError, match="is not mixed"):
        Request(gpus=4, gpu_type="H100", mixed=True)
