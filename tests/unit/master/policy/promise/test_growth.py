"""Elastic jobs with deadlines: promised their base, and more where that harms no promise."""

from __future__ import annotations

import pytest

from dlq_master.model.attempts.attempt import Suspension, SuspensionPhase
from dlq_master.model.attempts.attempt_steps import Preempted
from dlq_master.model.attempts.gang import usage
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps, strict
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool
from dlq_master.model.plan import Plan, Resize
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.promise.verdicts.reading import slo_job, worked_s
from support.builders import World, a_job, a_node

SETTINGS = {"guarantee": "fitting", "be_floor": "0", "margin": "0"}
DUE = strict(9000.0)


def a_world(*nodes: Node) -> World:
    return World("dlq", nodes, None, **SETTINGS)


def a_task(job_id: int, gpus: int, run_s: float, steps: Steps = BEST_EFFORT) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=steps)


def elastic(job_id: int, *sizes: int, run_s: float = 1000.0, steps: Steps = DUE) -> Job:
    request = Request(gpus=sizes[0], sizes=sizes)
    return a_job(job_id, request=request, duration_estimate_s=run_s, steps=steps)


def where(world: World, job_id: int) -> dict[str, int]:
    slots = world.attempt(job_id).lease.allocation.slots
    return {str(slot.node_id): slot.mask.bit_count() for slot in slots}


def runs_on(world: World, until_s: float) -> None:
    """Whoever is told to leave does so when its term ends."""
    while (now_s := world.wake_at_s or until_s) < until_s:
        world.at(now_s)
        if world.leaving:
            world.now_s = now_s + world.cluster.saves.lead_s
            for job_id in world.leaving:
                world.leave(job_id)
            world.decide()


def in_its_own_slots(run_s: float) -> World:
    """Job 1 holds slots 1 to 4 on n1, whose 4,800 s are all that it may need; n2 becomes free
    meanwhile.
    """
    world = a_world(a_node("n1"), a_node("n2")).submit(a_task(2, 8, 500.0), a_task(3, 8, 500.0))
    world.at(10.0).submit(elastic(1, 8, 16, run_s=run_s, steps=strict(5995.0))).decide()
    assert world.job(1).slots == ((1, 5),)
    runs_on(world, 1400.0)
    assert world.job(1).band is Band.SLO
    for now_s in (1500.0, 1510.0):  # the one that runs, and the one that had to leave
        world.now_s = now_s
        (other,) = [job_id for job_id in (2, 3) if job_id in world.running]
        world.finish(other).decide()
    return world


def at_the_boundary(world: World) -> Plan:
    """What is decided of the slot that begins at 2,400 s."""
    world.now_s = 2370.0
    while (planned := world.plan()).again:
        drive.apply(world.cluster, planned, world.now_s, epoch=1)
    return planned


def test_it_is_promised_its_base_and_starts_on_what_is_free() -> None:
    world = a_world(a_node("n1")).submit(elastic(1, 2, 4, 8)).at(10.0)
    assert (where(world, 1), world.job(1).promised) == ({"n1": 8}, 0)


def test_a_seat_takes_what_it_holds_beyond_its_base() -> None:
    world = a_world(a_node("n1")).submit(elastic(1, 2, 4, 8, run_s=5000.0)).at(10.0)
    world.submit(a_task(2, 4, 1000.0, strict(2600.0))).decide()
    assert [world.job(number).promised for number in (1, 2)] == [0, 0]
    runs_on(world, 1400.0)
    assert (where(world, 1), where(world, 2)) == ({"n1": 4}, {"n1": 4})
    assert [world.job(number).promised for number in (1, 2)] == [0, 0]


@pytest.mark.parametrize("deadlines", [BEST_EFFORT, DUE])
def test_a_seat_takes_it_from_who_has_just_started_too(deadlines: Steps) -> None:
    """Guards against thrashing stand between those who compete by the order."""
    world = a_world(a_node("n1")).submit(a_task(3, 8, 100.0)).at(10.0)
    world.submit(a_task(2, 8, 1000.0, strict(2400.0))).decide()
    world.now_s = 1140.0
    world.finish(3).submit(elastic(1, 2, 4, 8, run_s=400.0, steps=deadlines)).decide()
    assert (where(world, 1), world.running) == ({"n1": 8}, [1])
    runs_on(world, 1300.0)
    assert world.running == [2]


@pytest.mark.parametrize(("run_s", "gpus"), [(4660.0, 16), (4700.0, 8)])
def test_in_its_own_slots_it_grows_if_they_leave_time_for_two_more_pauses(
    run_s: float, gpus: int
) -> None:
    world = in_its_own_slots(run_s)
    runs_on(world, 2500.0)
    assert sum(where(world, 1).values()) == gpus
    assert world.job(1).promised == 0


def test_a_plan_that_grows_it_where_there_is_no_time_is_illegal() -> None:
    roomy, tight = in_its_own_slots(4660.0), in_its_own_slots(4700.0)
    (resize,) = [it for it in at_the_boundary(roomy).changes if isinstance(it, Resize)]
    assert not [it for it in at_the_boundary(tight).changes if isinstance(it, Resize)]
    with pytest.raises(IllegalPlan, match="needs the time for what it is promised"):
        check_delta(View(tight.cluster, tight.now_s), Plan((resize,)), tight.policy)


def test_who_has_grown_is_planned_with_the_way_back() -> None:
    world = in_its_own_slots(4660.0)
    before = slo_job(world.cluster, world.job(1), 2, 0.0)
    runs_on(world, 2500.0)
    grown = slo_job(world.cluster, world.job(1), 3, 0.0)
    assert (before.running, grown.running) == (True, False)


def test_its_work_counts_no_more_than_on_its_base_while_nobody_knows_better() -> None:
    world = a_world(a_node("n1")).submit(elastic(1, 2, 8, run_s=5000.0)).at(10.0)
    job, attempt = world.job(1), world.attempt(1)
    assert worked_s(world.cluster, job, attempt, 210.0) == 200.0
    assert usage(attempt, Preempted(), job, 210.0).worked_s == 200.0
    known = job._replace(speeds=(1.0, 3.0))
    assert usage(attempt, Preempted(), known, 210.0).worked_s == 600.0
    assert worked_s(world.cluster, known, attempt, 210.0) == 200.0
    slower = job._replace(speeds=(1.0, 0.5))
    assert worked_s(world.cluster, slower, attempt, 210.0) == 100.0


def test_a_suspended_one_does_no_work() -> None:
    world = a_world(a_node("n1")).submit(elastic(1, 2, 8, run_s=5000.0)).at(10.0)
    attempt, job = world.attempt(1), world.job(1)._replace(worked_s=40.0)
    out = Suspension(SuspensionPhase.OUT, 50.0, attempt.lease.allocation, out_s=50.0)
    assert worked_s(world.cluster, job, attempt._replace(suspension=out), 210.0) == 40.0


def test_it_grows_on_the_cluster_s_own_nodes_alone() -> None:
    lent = a_node("t1", 8, pool=NodePool.INFERENCE, flags=frozenset([NodeFlag.LOANED]))
    world = a_world(a_node("n1"), lent).submit(elastic(1, 8, 16, run_s=5000.0)).at(10.0)
    runs_on(world, 1400.0)
    assert where(world, 1) == {"n1": 8}


def test_it_is_not_spread_over_more_nodes_than_that_size_needs() -> None:
    world = a_world(a_node("n1"), a_node("n2"))
    world.submit(a_task(2, 6, 500.0), a_task(3, 6, 500.0)).at(10.0)
    world.submit(elastic(1, 2, 4, run_s=5000.0)).decide()
    runs_on(world, 900.0)
    assert where(world, 1) in ({"n1": 2}, {"n2": 2})


def test_who_is_promised_nothing_grows_like_anybody() -> None:
    world = World("dlq", 1, None, margin="0").submit(
        elastic(1, 2, 4, 8, run_s=5000.0, steps=strict(1000.0))
    )
    world.at(10.0)
    assert (where(world, 1), world.job(1).promised) == ({"n1": 8}, None)
    assert JobId(1) not in world.cluster.promised
