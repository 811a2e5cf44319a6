"""Renting reckons with declared speeds of GPU types, on own nodes and on machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlq_master.model.jobs.job import Lateness
from dlq_master.model.jobs.machine_runs import MachineRun, no_runs, runs_of
from dlq_master.model.machines.renting import RentingView
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy import pipeline
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.registry.renting import build
from dlq_master.policy.rent.line import own_node_ends_s, waiting_in_order
from dlq_master.policy.rent.moving import bidders_of, movable_jobs
from dlq_master.policy.rent.stage import RentMethod
from dlq_master.policy.rent.times import MachineRunTimes
from dlq_master.policy.stop_costs import expected_end_s
from support.builders import World, a_job, a_node, an_attempt

SLOW, FAST = "t4-16gb", "h100-80gb"
DECLARED = TypeSpeeds({"t4": 0.25})
NAMED = Request(gpus=1, gpu_type=SLOW)
ANY = Request(gpus=1)


def a_world(policy: str, gpus: int) -> World:
    world = World(policy, [a_node("n1", gpus, SLOW)])
    world.cluster.speeds = DECLARED
    return world


def times(kind: str = FAST, *ran: MachineRun) -> MachineRunTimes:
    runs = no_runs()
    runs.extend(ran)
    types = [NodeType("spot", kind, 4, 10.0)]
    return MachineRunTimes(types, [DECLARED.of(kind)], runs, DECLARED)


@pytest.mark.parametrize(
    ("own", "request_", "lasts_s"),
    [
        ({FAST: 8}, ANY, 3600.0),
        ({SLOW: 8}, ANY, 4 * 3600.0),
        ({SLOW: 4, FAST: 4}, ANY, 5760.0),  # at the mean speed, 0.625
        ({SLOW: 4, FAST: 4}, NAMED, 3600.0),  # its run time is that on its type
        ({SLOW: 1, FAST: 4}, replace(NAMED, or_gpu_types=("a100",)), 4 * 3600.0),
    ],
)
def test_the_line_for_own_gpus_goes_at_their_speed(
    own: dict[str, int], request_: Request, lasts_s: float
) -> None:
    job = a_job(1, request=request_, duration_estimate_s=3600.0)
    (stands,) = times().line_entries([job], own)
    assert stands.lasts_s == pytest.approx(lasts_s)


def test_the_line_is_worked_out_anew_when_other_gpus_have_come() -> None:
    known, job = times(), a_job(1, duration_estimate_s=3600.0)
    assert known.line_entries([job], {SLOW: 8})[0].lasts_s == 4 * 3600.0
    assert known.line_entries([job], {FAST: 8})[0].lasts_s == 3600.0


@pytest.mark.parametrize(
    ("kind", "request_", "left_s"),
    [(FAST, ANY, 3000.0), (SLOW, ANY, 12_000.0), (SLOW, NAMED, 3000.0), (FAST, NAMED, np.inf)],
)
def test_a_machine_takes_as_long_as_its_gpus_need(
    kind: str, request_: Request, left_s: float
) -> None:
    job = a_job(1, request=request_, duration_estimate_s=3600.0, worked_s=600.0)
    (table,) = times(kind).left_s([job])
    assert table[0, 0] == pytest.approx(left_s)


def test_a_run_on_slow_gpus_teaches_its_number_of_gpus() -> None:
    """Its service counts a quarter: four GPUs are not taken for one."""
    ran = a_job(2, 4, family="f", total_gpu_s=400.0, total_executed_s=400.0)
    known = times(SLOW, *runs_of(ran, 0.0, 0.25, 0.25))
    (table,) = known.left_s([a_job(1, 4, family="f", lateness=Lateness(0.0, 1.0))])
    assert table[0, 3] == pytest.approx(400.0)


def test_what_runs_ends_as_its_gpus_need() -> None:
    job = a_job(1, duration_estimate_s=3600.0, worked_s=600.0, total_executed_s=2400.0)
    attempt = an_attempt(1)._replace(speed=0.25)
    assert expected_end_s(job, attempt, 100.0) == 100.0 + 12_000.0
    named = job._replace(request=NAMED)
    assert expected_end_s(named, attempt, 100.0) == 100.0 + 3000.0
    limited = a_job(1, time_limit_s=60.0)
    assert expected_end_s(limited, attempt, 100.0) == 160.0, "a limit is told by the clock"


def test_who_waits_starts_when_the_slow_gpus_are_free() -> None:
    world = a_world("best-effort", 4)
    world.submit(a_job(1, 4, duration_estimate_s=900.0)).decide()
    world.submit(a_job(2, 4, duration_estimate_s=100.0))
    cluster, known = world.cluster, times()
    line = [
        *waiting_in_order(cluster, cluster.waiting),
        *(cluster.jobs[job_id] for job_id in cluster.pending),
    ]
    ends = own_node_ends_s(
        cluster,
        world.now_s,
        line,
        lambda jobs: known.line_entries(jobs, cluster.own.gpus),
        grows=False,
    )
    assert ends == {2: world.now_s + 3600.0 + 400.0}


def test_the_stage_tells_the_own_gpus() -> None:
    waits = a_job(2, 4, lateness=Lateness(0.0, 1.0), duration_estimate_s=100.0)
    world = a_world("fifo", 4)
    world.submit(a_job(1, 4, duration_estimate_s=900.0)).decide().submit(waits).decide()
    kind = NodeType("spot", FAST, 4, 10.0)
    policy = replace(world.policy, renting=RentMethod((kind,), build("dlq", {})))
    machines = RentingView({}, set(), {"spot": 0}, 0.0, 0.0)
    view, known = View(world.cluster, world.now_s, machines=machines), times()
    decided = pipeline.rent(view, policy, lambda: known, lambda: np.random.default_rng(0))
    assert decided.market is not None
    (wanting,) = decided.market.bidders
    assert wanting.own_end_s == world.now_s + 3600.0 + 400.0


def test_who_might_move_ends_here_as_its_gpus_need() -> None:
    sized = Request(gpus=1, sizes=(1, 2, 4))
    first = a_job(1, request=sized, lateness=Lateness(1000.0, 1.0), duration_estimate_s=1000.0)
    world = a_world("gandiva-elastic", 1)
    world.submit(first).decide()
    world.now_s += 400.0  # 100 s of its work
    moving = movable_jobs(world.cluster, world.now_s)
    (moves,) = bidders_of(world.cluster, world.now_s, [], moving, (), times(), {1: 1e9})
    assert moves.own_end_s == world.now_s + 3600.0
