"""tiresias-las: exact demotion, both orders, preemption at boundaries only, promotion."""

import pytest

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.model.plan import Lapse, Start
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import ReasonCode
from dlq_master.policy.transit.front import must_leave
from support.builders import World, a_job, a_node
from support.extent import spread


def las(nodes: int = 1, **settings: str) -> World:
    return World("tiresias-las", nodes, **{"thresholds": "800,8000", **settings})  # type: ignore[arg-type]


def test_a_job_is_demoted_exactly_when_its_service_crosses_the_threshold() -> None:
    world = las().submit(a_job(1, 3)).decide()
    crossing_s = 1.0 + 800.0 / 3
    assert world.wake_at_s == crossing_s
    world.at(crossing_s - 1e-6)
    assert world.job(1).level == 0
    world.at(crossing_s)
    assert world.job(1).level == 1
    assert world.wake_at_s == pytest.approx(270.0)  # the boundary's decision comes first now


def test_service_of_earlier_attempts_counts() -> None:
    world = las(preempt="free").submit(a_job(1, 8)).at(0.0)
    world.now_s = 50.0
    world.lose(1).decide()  # 400 GPU-seconds
    assert world.wake_at_s == 100.0


def test_work_is_taken_away_only_at_a_boundary_and_early_enough_to_save() -> None:
    world = las().submit(a_job(1, 8)).decide()
    world.at(101.0)
    assert world.job(1).level == 1
    world.submit(a_job(2, 8)).decide()
    assert (world.running, world.leaving) == ([1], [])
    world.now_s = 270.0
    (lapse,) = (change for change in world.plan().changes if isinstance(change, Lapse))
    assert (lapse.at_s, lapse.for_job, lapse.reason.code) == (300.0, 2, ReasonCode.OUTRANKED)
    world.decide()
    assert (world.running, world.leaving) == ([], [1])
    assert world.attempt(1).stop_cause is StopCause.PREEMPT
    world.leave(1).decide()
    assert world.running == [2]
    assert world.job(1).preemptions == 1


def test_a_job_of_the_same_level_is_not_preempted() -> None:
    world = las(thresholds="100000").submit(a_job(1, 8)).decide().submit(a_job(2, 8))
    world.at(60.0).at(270.0)
    assert (world.running, world.leaving) == ([1], [])


def test_requeue_puts_a_demoted_job_behind_those_that_wait() -> None:
    world = las(preempt="free", thresholds="80").submit(a_job(1, 8), a_job(2, 8)).at(0.0)
    world.at(10.0)  # 1 crosses: 2 outranks it
    assert world.running == [2]
    world.at(20.0)  # 2 crosses too: it goes behind 1
    assert world.running == [1]
    world.at(500.0)  # the last level is fifo: nothing changes any more
    assert (world.running, world.wake_at_s) == ([1], None)


def test_first_start_keeps_the_order_of_first_starts_in_every_level() -> None:
    world = las(preempt="free", thresholds="80", order="first-start")
    world.submit(a_job(1, 8), a_job(2, 8)).at(0.0).at(10.0)
    assert world.running == [2]
    world.at(20.0)
    assert world.running == [1]
    world.submit(a_job(3, 8)).decide()
    assert world.running == [3]
    world.finish(3).decide()
    assert world.running == [1]


def test_preempted_jobs_wait_in_their_old_order_before_the_others() -> None:
    world = las(preempt="free", thresholds="80", place="count")
    world.submit(*(a_job(n, 2) for n in (1, 2, 3, 4))).at(0.0)
    world.submit(*(a_job(n, 2) for n in (5, 6, 7, 8)))
    world.at(40.0)  # 1-4 cross and make room for 5-8
    assert world.running == [5, 6, 7, 8]
    world.finish(5, 6).decide()
    assert world.running == [1, 2, 7, 8]


def test_only_the_lowest_ranked_leave_and_as_few_as_needed() -> None:
    world = las(nodes=3, preempt="free")
    world.submit(*(a_job(n, 8) for n in (1, 2, 3))).at(0.0)
    world.at(100.0)
    assert [world.job(n).level for n in (1, 2, 3)] == [1, 1, 1]
    world.submit(a_job(4, 8)).decide()
    assert world.running == [1, 2, 4]


def test_a_gang_beside_the_gpus_that_are_taken_stays() -> None:
    world = las(nodes=2, preempt="free", thresholds="60")
    world.submit(a_job(1, 4, nodes=2), a_job(2, 6)).at(0.0)
    world.at(10.0).at(15.0)  # 2 crosses, then 1: the lower ranked of the two has GPUs on each node
    world.submit(*(a_job(n, 2) for n in (3, 4, 5))).decide()
    world.submit(a_job(6, 6)).decide()
    assert world.running == [1, 3, 4, 5, 6]


def test_a_narrow_job_does_not_evict_more_than_one() -> None:
    world = las(nodes=2, preempt="free", place="spread")
    world.submit(a_job(1, 8), a_job(2, 4), a_job(3, 4)).at(0.0).at(200.0)
    world.submit(a_job(4, 1)).decide()
    assert world.running == [1, 2, 4]


def stream_of_narrow_jobs(world: World, from_id: int, until_s: float) -> int:
    """Every 20 s a narrow job ends and another comes, so that no node is ever empty by itself."""
    next_id = from_id
    while world.now_s < until_s:
        world.now_s += 20.0
        narrow = [n for n in world.running if world.job(n).request.gpus == 1]
        if narrow:
            world.finish(narrow[0])
        world.submit(a_job(next_id, 1)).decide()
        for n in world.leaving:
            world.leave(n)
        world.decide()
        next_id += 1
    return next_id


@pytest.mark.parametrize("place", spread(["consolidate", "spread", "count"], 1))
def test_a_starving_gang_is_promoted_and_starts_under_a_stream_of_narrow_jobs(place: str) -> None:
    def starved(**settings: str) -> bool:
        world = las(nodes=2, thresholds="100000", place=place, **settings)
        world.submit(*(a_job(n, 1) for n in range(100, 116))).at(0.0)
        world.submit(a_job(1, 16)).decide()
        stream_of_narrow_jobs(world, 200, 3000.0)
        return 1 not in world.running

    assert starved()
    assert not starved(starve_limit_s="600")


def test_a_promoted_gang_keeps_what_is_free_for_itself() -> None:
    world = las(nodes=1, starve_limit_s="60", thresholds="100000")
    world.submit(a_job(1, 4), a_job(2, 4)).at(0.0)
    world.submit(a_job(3, 8)).at(30.0)
    world.at(90.0)
    assert world.job(3).promoted
    world.finish(1).submit(a_job(4, 1)).decide()
    assert world.running == [2]
    world.finish(2).decide()
    assert world.running == [3]
    assert not world.job(3).promoted


def test_the_knob_compares_waiting_with_execution_and_spares_level_zero() -> None:
    world = las(preempt="free", thresholds="80", promote_knob="3")
    world.submit(a_job(1, 8)).at(0.0).at(10.0)  # ran 10 s, level 1
    world.submit(a_job(2, 8)).decide()
    assert world.running == [2]
    assert world.wake_at_s == 20.0  # 2 crosses
    world.at(20.0)
    assert world.running == [1]  # demoted 2 stands behind 1, and waits from 20 on
    world.at(49.0)
    assert world.job(2).level == 1
    world.at(50.0)
    assert (world.job(2).level, world.running) == (0, [2])
    assert (world.job(2).attained_gpu_s, world.job(2).executed_s) == (0.0, 0.0)


def test_silent_work_is_left_alone() -> None:
    world = las().submit(a_job(1, 8)).decide().at(101.0)
    world.silence(1).submit(a_job(2, 8)).at(270.0)
    assert world.attempt(1).state is AttemptState.UNKNOWN
    assert (world.running, world.leaving) == ([], [])


def test_work_on_a_draining_node_makes_room_for_nobody() -> None:
    world = World("tiresias-las", [a_node("n1"), a_node("n2", 4)], thresholds="800")
    world.submit(a_job(1, 8)).decide().at(101.0)
    world.drain("n1").submit(a_job(2, 8)).at(270.0)
    assert (world.running, world.leaving) == ([1], [])


@pytest.mark.parametrize("place", ["consolidate", "spread"])
def test_work_on_a_node_that_lost_gpus_gives_only_those_that_are_left(place: str) -> None:
    world = las(place=place).submit(a_job(1, 8)).decide().at(101.0)
    whole = world.cluster.nodes[NodeId("n1")]
    found = Registered(gpus=whole.gpus[:4], boot_id=whole.boot_id)
    drive.step_node(world.cluster, whole.node_id, found, world.now_s)
    world.submit(a_job(2, 4)).at(270.0)
    assert world.leaving == [1]


def test_a_start_close_to_a_boundary_gets_the_term_after_it() -> None:
    world = las().submit(a_job(1, 1)).at(280.0)
    (attempt,) = world.cluster.attempts.values()
    assert attempt.lease.term_end_s == 600.0


def test_the_plan_is_the_same_whatever_the_order_in_which_the_state_was_built() -> None:
    jobs = [a_job(n, gpus, sequence=n) for n, gpus in enumerate((1, 4, 2, 8, 1, 6, 3), start=1)]

    def starts(order: list[int]) -> tuple[object, ...]:
        world = las(nodes=2)
        for place in order:
            world.cluster.put_job(
                jobs[place]._replace(sequence=(1 << 50) + 10 + place, request=jobs[place].request)
            )
        while world.plan().again:
            world.settle_moves()
        return tuple(change for change in world.plan().changes if isinstance(change, Start))

    assert starts([0, 1, 2, 3, 4, 5, 6]) == starts([6, 3, 1, 0, 5, 2, 4]) != ()


def test_two_promoted_gangs_do_not_take_each_other_down() -> None:
    world = las(preempt="free", thresholds="80", starve_limit_s="100")
    world.submit(a_job(1, 8), a_job(2, 4), a_job(3, 8)).at(0.0)
    for now_s in (10.0, 30.0, 40.0):  # each in turn crosses the threshold
        world.at(now_s)
    assert world.running == [1]
    world.at(130.0)
    assert world.running == [2]  # it has starved since 30
    world.at(140.0)
    assert (world.running, world.job(3).promoted) == ([2], True)
    world.at(150.0)  # 2 crosses again: now it is the turn of 3
    assert world.running == [3]


@pytest.mark.parametrize(
    ("widths", "gpus", "leaving"),
    [
        ([1, 3, 3], 5, [1, 2]),  # the narrow one, though lowest ranked, need not go
        ([1, 4], 2, [1]),
        ([2, 2, 2], 2, [0]),  # whoever ranks higher stays
        ([2, 2, 2], 3, [0, 1]),
        ([4], 4, [0]),
        ([], 0, []),
    ],
)
def test_whoever_can_stay_stays(widths: list[int], gpus: int, leaving: list[int]) -> None:
    assert must_leave(widths, gpus) == leaving


def test_gpus_kept_for_a_promoted_gang_are_not_forced_from_it() -> None:
    nodes = [a_node("n1", 4), a_node("n2", 4)]
    world = World("tiresias-las", nodes, thresholds="80", starve_limit_s="60")
    world.submit(a_job(1, 1), a_job(2, 2)).at(0.0)
    world.silence(1).submit(a_job(3, 8)).at(200.0)
    world.at(262.0)
    assert world.job(3).promoted
    world.submit(a_job(4, 4)).at(270.0)
    assert 4 not in world.running
