"""Who might move from own nodes to a machine, and who is on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlq_master.model.cluster.migrations import Migrations
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import HoldKind, Job, Lateness
from dlq_master.model.jobs.machine_runs import no_runs
from dlq_master.model.nodes.node import NodeFlag, NodePool
from dlq_master.model.plan import Migrate
from dlq_master.model.resources import Request
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.rent.moving import bidders_of, movable_jobs
from dlq_master.policy.rent.times import MachineRunTimes
from support.builders import World, a_job, a_node

LATE = Lateness(1000.0, 1.0)
SIZED = Request(gpus=1, sizes=(1, 2, 4))


def crawling(**more: Any) -> World:
    """Job 1 has one of four GPUs; job 2 the others."""
    first = a_job(1, **{"request": SIZED, "lateness": LATE, "duration_estimate_s": 4000.0, **more})
    return World("gandiva-elastic", [a_node("n1", 4)]).submit(a_job(2, 3), first).decide()


def found(world: World) -> list[Job]:
    return list(movable_jobs(world.cluster, world.now_s).values())


def test_who_may_be_resized_and_is_late_at_a_price_might_move_with_what_it_has_done() -> None:
    world = crawling()
    world.now_s += 500.0
    (job,) = found(world)
    assert (job.job_id, job.worked_s) == (1, 500.0)


@pytest.mark.parametrize("more", [{"lateness": None}, {"request": Request(gpus=1)}])
def test_nobody_else_does(more: dict[str, Any]) -> None:
    assert found(crawling(**more)) == []


@pytest.mark.parametrize(
    "now",
    [
        {"flags": frozenset({NodeFlag.CORDONED})},
        {"pool": NodePool.PRICED},
        {"pool": NodePool.INFERENCE, "flags": frozenset({NodeFlag.LOANED})},
    ],
)
def test_only_from_own_nodes_that_take_work(now: dict[str, Any]) -> None:
    world = crawling()
    world.cluster.put_node(world.cluster.nodes[a_node("n1").node_id]._replace(**now))
    assert found(world) == []


def test_who_has_been_told_to_leave_does_not() -> None:
    assert found(crawling().pause(1)) == []


def test_a_save_and_a_start_are_left_besides_and_it_is_done_no_later_than_as_it_runs() -> None:
    world = crawling()
    world.now_s += 500.0
    moving = movable_jobs(world.cluster, world.now_s)
    kind = NodeType("spot", "H100", 4, 10.0)
    times = MachineRunTimes([kind], [1.0], no_runs())
    now = world.cluster, world.now_s, [world.job(2)._replace(lateness=LATE)], moving
    waits, moves = bidders_of(*now, (), times, {1: 1e6})
    assert [waits.job, moves.job] == [2, 1]
    terms = world.cluster.terms
    left_s = 3500.0 + terms.save_lead_s + terms.resume_s
    assert moves.left_s[0] == pytest.approx(
        [left_s, 3500.0 / 2**0.85 + left_s - 3500.0, np.inf, 3500.0 / 4**0.85 + left_s - 3500.0]
    )
    assert (waits.own_end_s, moves.own_end_s) == (np.inf, world.now_s + 3500.0)
    assert bidders_of(*now, moving.keys(), times, {1: 1e6})[1].own_end_s == 1e6, "it gives way"


def arrived(way: Migrations, world: World) -> list[Migrate]:
    return way.arrived(world.cluster.jobs, world.cluster.attempts)


def migrates(job_id: int) -> Migrate:
    why = Reason(ReasonCode.RENTED, detail="spot")
    return Migrate(AttemptKey(JobId(job_id), 1), "spot-1", 4, 30.0, why)


def test_who_is_on_the_way_arrives_once_it_waits() -> None:
    world, way = crawling(), Migrations()
    put = migrates(1)
    world.hold(1, HoldKind.PAUSED)
    way.add(put)
    assert (arrived(way, world), way.to("spot-1")) == ([], [put]), "it still saves"
    world.leave(1)
    assert (arrived(way, world), way.to("spot-1")) == ([], []), "it is held"


@pytest.mark.parametrize("what", ["runs", "is over", "was never"])
def test_who_does_not_leave_is_forgotten(what: str) -> None:
    world, way = crawling(), Migrations()
    if what == "is over":
        world.finish(1)
    way.add(migrates(9 if what == "was never" else 1))
    assert (arrived(way, world), way.to("spot-1")) == ([], [])
