"""Groups in plans: all members start in one plan or none does, and nobody's GPUs are kept."""

from collections.abc import Sequence

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array, GroupedMember, MemberEnds
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.model.plan import Plan, Start
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.legal.recheck import basis_of, recheck
from support.builders import World, a_node, a_waiting_job

POLICIES = ("dlq", "fifo", "best-effort", "srtf", "tiresias-las", "chronus")


def a_group(first: int, *gpus: int, **fields: object) -> list[Job]:
    """Members with so many GPUs, whose ids begin behind that of the group."""
    members = tuple(GroupedMember(f"m{index}", 1, MemberEnds.EACH) for index in range(len(gpus)))
    array = Array(JobId(first), len(gpus), 0, 0, len(gpus) - 1, 1, members)
    return [
        a_waiting_job(first + 1 + index, wide, array=array, array_index=index, **fields)
        for index, wide in enumerate(gpus)
    ]


def running(world: World) -> set[int]:
    return {key.job_id for key in world.cluster.attempts}


@pytest.mark.parametrize("policy", POLICIES)
def test_all_members_start_in_one_plan(policy: str) -> None:
    world = World(policy, nodes=2).submit(*a_group(10, 8, 4, 2))
    assert running(world.decide()) == {11, 12, 13}


@pytest.mark.parametrize("policy", POLICIES)
def test_none_starts_while_one_lacks_room(policy: str) -> None:
    world = World(policy, nodes=2).submit(a_waiting_job(1, 4)).decide()
    world.submit(*a_group(10, 8, 4, 2)).decide()
    assert running(world) == {1}
    world.finish(1)
    assert running(world.decide()) == {11, 12, 13}


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "fifo"])
def test_no_gpu_is_kept_for_a_group_of_which_one_member_has_no_room(policy: str) -> None:
    world = World(policy, nodes=2).submit(a_waiting_job(1, 4)).decide()
    world.submit(*a_group(10, 8, 8), a_waiting_job(20, 8)).decide()
    assert running(world) == {1, 20}


def test_in_a_line_that_blocks_nobody_passes_a_group() -> None:
    world = World("fifo", nodes=2).submit(a_waiting_job(1, 4)).decide()
    world.submit(*a_group(10, 8, 8), a_waiting_job(20, 1)).decide()
    assert running(world) == {1}
    world.finish(1)
    assert running(world.decide()) == {11, 12}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_group_without_one_of_its_nodes_lets_others_pass_but_in_a_blocking_line(
    policy: str,
) -> None:
    nodes = [a_node("n1"), a_node("n2", gpu_type="A100")]
    other = Request(gpus=8, nodes=None, gpu_type="GH200")
    learner, actor = a_group(10, 4, 8)
    world = World(policy, nodes=nodes).submit(learner, actor._replace(request=other))
    world.submit(a_waiting_job(20, 8)).decide()
    assert running(world) == (set() if policy == "fifo" else {20})


def test_of_two_groups_the_second_starts_when_the_first_has_no_room() -> None:
    world = World("best-effort", nodes=2)
    world.submit(*a_group(10, 8, 8, 8), *a_group(20, 8, 8)).decide()
    assert running(world) == {21, 22}


def test_a_group_does_not_suffer_from_a_part_of_one_that_has_no_room() -> None:
    world = World("best-effort", nodes=[a_node("n1", 2), a_node("n2", 4)], place="spread")
    world.submit(*a_group(10, 3, 4, priority_base=1))
    for first, gpus in ((20, (2, 1)), (30, (1, 1))):
        behind, ahead = a_group(first, *gpus)
        world.submit(behind._replace(priority_base=1), ahead)
    assert running(world.decide()) == {21, 22, 31, 32}


def test_many_groups_that_lack_room_take_a_bounded_number_of_walks() -> None:
    world = World("best-effort", nodes=1)
    for number in range(40):
        world.submit(*a_group(100 + 10 * number, 8, 1))
    assert running(world.decide()) == set()
    world.submit(a_waiting_job(1, 8))
    assert running(world.decide()) == {1}


def test_a_held_member_keeps_the_others_from_starting() -> None:
    world = World("best-effort", nodes=2).submit(*a_group(10, 1, 1))
    world.hold(12, HoldKind.USER)
    assert running(world.decide()) == set()


def test_a_member_that_has_ended_is_not_waited_for() -> None:
    world = World("best-effort", nodes=2).submit(*a_group(10, 1, 1)).decide()
    world.finish(12)
    world.lose(11)
    assert running(world.decide()) == {11}


def test_members_wait_for_gpus_that_are_released_soon_and_keep_theirs() -> None:
    world = World("best-effort", nodes=2).submit(a_waiting_job(1, 8)).decide()
    world.pause(1)
    world.submit(*a_group(10, 8, 8), a_waiting_job(20, 8)).decide()
    assert running(world) == {1}, "node n2 is kept, since n1 is free soon"
    world.leave(1)
    assert running(world.decide()) == {11, 12}


def test_a_plan_that_starts_a_part_of_a_group_is_illegal_and_loses_that_part() -> None:
    world = World("best-effort", nodes=2).submit(*a_group(10, 1, 1), a_waiting_job(20, 1))
    whole = world.plan()
    part = Plan(tuple(it for it in whole.changes if not _starts(it, 12)))
    view = View(world.cluster, world.now_s)
    with pytest.raises(IllegalPlan, match="start together"):
        check_delta(view, part, world.policy)
    checked = recheck(view, part, world.policy, basis_of(world.cluster))
    assert started(checked.plan.changes) == {20}
    assert started(recheck(view, whole, world.policy, basis_of(world.cluster)).plan.changes) == {
        11,
        12,
        20,
    }


def _starts(change: object, job_id: int) -> bool:
    return isinstance(change, Start) and change.job_id == job_id


def started(changes: Sequence[object]) -> set[int]:
    return {int(it.job_id) for it in changes if isinstance(it, Start)}
