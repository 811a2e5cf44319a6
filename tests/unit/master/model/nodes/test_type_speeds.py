"""Speeds of GPU types: what they make of service, work, run times, sizes and promises."""

from __future__ import annotations

import pytest

from dlq_master.model.cluster.frozen import freeze, thaw
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.reserved import kept_off
from dlq_master.model.nodes.type_speeds import (
    ALL_ALIKE,
    GangPart,
    TypeSpeeds,
    batch_shares,
    shared_speed,
)
from dlq_master.model.nodes.windows import Window
from dlq_master.model.order.keys import had
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.planner.snapshot import read, take
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.promise.verdicts.reading import slo_job
from support.builders import World, a_job, a_node, a_request

H100, T4 = "h100-80gb", "t4-16gb"
SLOW = TypeSpeeds({"t4": 0.25})


def a_world(policy: str = "best-effort", speeds: TypeSpeeds = SLOW, **settings: str) -> World:
    """One node with 8 T4s."""
    world = World(policy, [a_node("slow", 8, T4)], None, **settings)
    world.cluster.speeds = speeds
    return world


@pytest.mark.parametrize(
    ("declared", "gpu_type", "speed"),
    [
        ({}, T4, 1.0),
        ({"t4": 0.3}, T4, 0.3),
        ({"t4": 0.3}, "t4", 0.3),
        ({"t4": 0.3}, "t40-16gb", 1.0),
        ({"t4": 0.3, "t4-16gb": 0.4}, T4, 0.4),
        ({"rtx": 0.5, "rtx-a6000": 0.6}, "rtx-a6000-48gb", 0.6),
        ({"t4": 0.3}, H100, 1.0),
    ],
)
def test_a_name_stands_for_the_types_that_begin_with_it(
    declared: dict[str, float], gpu_type: str, speed: float
) -> None:
    assert TypeSpeeds(declared).of(gpu_type) == speed


def test_gpus_of_several_types_together_are_as_fast_as_the_slowest() -> None:
    assert SLOW.slowest([H100, T4]) == 0.25
    assert SLOW.slowest([]) == 1.0
    assert ALL_ALIKE.slowest([H100, T4]) == 1.0


def test_service_counts_in_gpu_seconds_of_the_reference() -> None:
    world = a_world("tiresias-las", thresholds="1000").submit(a_job(1, 8)).at(0.0)
    assert world.attempt(1).speed == 0.25
    assert had(world.job(1), world.attempt(1), 100.0).attained_gpu_s == 200.0
    crossings = world.cluster.levels.crossings
    assert crossings.next_s() == 500.0  # 1,000 of them by 8 GPUs at a quarter of the speed
    world.now_s = 100.0
    world.finish(1)
    assert (world.job(1).total_gpu_s, world.job(1).total_executed_s) == (200.0, 100.0)


@pytest.mark.parametrize(("gpu_type", "worked_s"), [(None, 25.0), (T4, 100.0)])
def test_work_is_that_on_the_reference_or_on_the_only_type_that_a_job_names(
    gpu_type: str | None, worked_s: float
) -> None:
    request = a_request(8, gpu_type=gpu_type)
    job = a_job(1, request=request, duration_estimate_s=1000.0)
    world = a_world("srtf").submit(job).at(0.0)
    assert left_s(world.cluster, world.job(1), 100.0) == 1000.0 - worked_s
    assert had(world.job(1), world.attempt(1), 100.0).executed_s == worked_s
    world.now_s = 100.0
    world.finish(1)
    assert world.job(1).worked_s == worked_s


def test_a_use_of_slow_gpus_weighs_less_against_a_share() -> None:
    def charged(speeds: TypeSpeeds) -> float:
        world = a_world("dlq", speeds, team_share="*:1").submit(a_job(1, 8)).at(0.0)
        world.now_s = 100.0
        world.finish(1)
        shares = world.cluster.shares
        assert shares is not None
        return sum(shares.ledger.at(100.0).values())

    assert charged(SLOW) == pytest.approx(0.25 * charged(ALL_ALIKE))


def test_a_resize_that_pays_only_on_slow_gpus_is_made_there() -> None:
    """On the reference 40 s of work gain 20 s by it, which is less than a resize costs."""

    def grown(speeds: TypeSpeeds) -> int:
        terms = Terms(be_term_s=60.0, slo_term_s=60.0, save_lead_s=15.0, resume_s=15.0)
        world = World("aryl", nodes=[a_node("slow", 8, T4)], terms=terms)
        world.cluster.speeds = speeds
        elastic = Request(gpus=4, sizes=(4, 8))
        world.submit(
            a_job(1, 4, duration_estimate_s=10.0),
            a_job(2, request=elastic, duration_estimate_s=40.0 + 45.0 * speeds.of(T4)),
        ).at(0.0)
        assert world.running == [1, 2]
        world.now_s = 10.0
        world.finish(1)
        world.at(45.0)
        attempt = world.attempt(2)
        return (attempt.regrant or attempt.lease.allocation).width

    assert (grown(ALL_ALIKE), grown(SLOW)) == (4, 8)


def test_a_promise_on_a_slow_type_reserves_the_time_that_its_work_takes_there() -> None:
    job = a_job(1, 8, duration_estimate_s=3600.0, steps=strict(86_400.0))
    works_s = []
    for speeds in (ALL_ALIKE, SLOW):
        world = a_world("chronus", speeds).submit(job)
        works_s.append(slo_job(world.cluster, world.job(1), 0, 0.0).work_s)
    assert works_s[1] - works_s[0] == pytest.approx(3 * 3600.0)


@pytest.mark.parametrize(("speeds", "promised"), [(ALL_ALIKE, 0), (SLOW, None)])
def test_a_deadline_that_holds_on_the_reference_alone_is_not_promised_on_slow_gpus(
    speeds: TypeSpeeds, promised: int | None
) -> None:
    world = a_world("chronus", speeds, be_floor="0")
    world.submit(a_job(1, 8, duration_estimate_s=2000.0, steps=strict(4000.0))).decide()
    assert world.job(1).promised == promised


def test_a_measured_run_time_is_promised_on_any_type_once_speeds_are_declared() -> None:
    """Without them it holds on its own type alone (`types_for`)."""
    basis = Basis(Source.PROFILED, Confidence.HIGH)

    def promised(speeds: TypeSpeeds) -> str:
        nodes = [a_node("fast1", 8, H100), a_node("fast2", 8, H100), a_node("slow", 8, T4)]
        world = World("chronus", nodes, be_floor="0")
        world.cluster.speeds = speeds
        job = a_job(1, 8, duration_estimate_s=2000.0, basis=basis, steps=strict(6000.0))
        return world.submit(job).decide().job(1).gpu_type_promised

    assert (promised(ALL_ALIKE), promised(SLOW)) == ("", H100)


def a_run(job_id: int, gpu_type: str, worked_s: float) -> Job:
    return a_job(job_id, 8, family="f", gpu_type_ran=gpu_type, worked_s=worked_s)


def test_history_holds_seconds_of_the_type_on_which_a_run_was() -> None:
    profiling = a_world("dlq").cluster.profiling
    profiling.learn(a_run(1, T4, 100.0), SLOW.pace(a_request(8), T4))
    profiling.learn(a_run(2, H100, 100.0), SLOW.pace(a_request(8), H100))
    ((_, of_type),) = profiling.runs.items()
    assert of_type == {T4: (400.0,), H100: (100.0,)}


def test_a_job_keeps_off_a_node_if_it_would_run_into_a_reservation_there() -> None:
    job = a_job(1, 8, duration_estimate_s=1000.0, keeps_work=False, basis=Basis(Source.DECLARED))
    nodes = [a_booked_node("fast", H100), a_booked_node("slow", T4)]
    slow, alike = a_world().cluster.slowest_pace, a_world(speeds=ALL_ALIKE).cluster.slowest_pace
    assert kept_off(job, nodes, 0.0, Terms(), slow).off == ("slow",)
    assert kept_off(job, nodes, 0.0, Terms(), alike).off == ()
    typed = job._replace(request=a_request(8, gpu_type=T4))
    assert kept_off(typed, nodes, 0.0, Terms(), slow).off == ()


def a_booked_node(name: str, gpu_type: str) -> Node:
    return a_node(name, 8, gpu_type, windows=(Window(2000.0, 3000.0, "r1"),))


def test_the_planner_and_the_twin_get_the_speeds() -> None:
    world = a_world("dlq").submit(a_job(1, 8))
    assert thaw(freeze(world.cluster), world.policy.ordering).speeds == SLOW
    view, _ = read(take(View(world.cluster, 0.0), world.policy)).look()
    assert view.cluster.speeds == SLOW


def test_another_declaration_changes_nothing_that_has_been_counted() -> None:
    """As after a master has started again with another file."""
    world = a_world("tiresias-las").submit(a_job(1, 8)).at(0.0)
    world.cluster.speeds = TypeSpeeds({"t4": 0.5})
    assert had(world.job(1), world.attempt(1), 100.0).attained_gpu_s == 200.0


def test_shares_of_a_batch_let_all_gpus_end_a_step_together() -> None:
    parts = [GangPart(2, 1.0), GangPart(4, 0.25)]
    shares = batch_shares(parts)
    assert shares == pytest.approx((1 / 3, 1 / 12))
    assert sum(part.gpus * share for part, share in zip(parts, shares, strict=True)) == 1.0
    assert {share / part.speed for part, share in zip(parts, shares, strict=True)} == {1 / 3}
    assert shared_speed(parts) == pytest.approx(0.5), "the mean of its GPUs"
    assert shared_speed([GangPart(8, 0.25)]) == pytest.approx(0.25)
