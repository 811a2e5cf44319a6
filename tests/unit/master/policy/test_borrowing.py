"""Quotas of teams that lend: who has a right to its GPUs, who borrows, and who leaves first."""

from __future__ import annotations

from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import Lane
from dlq_master.model.validate import validate
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.explain import explain
from dlq_master.policy.glance import Glance
from support.builders import World, a_job

ANN, BOB = "ann", "bob"


def a_world(nodes: int = 2, quota: str = "ann:8,bob:8") -> World:
    return World("dlq", nodes, None, team_quota=quota, place="consolidate")


def of(user: str, job_id: int, gpus: int, run_s: float) -> Job:
    return a_job(job_id, gpus, user=user, duration_estimate_s=run_s)


def lanes(world: World) -> dict[int, Lane]:
    return {int(job_id): job.lane for job_id, job in world.cluster.jobs.items()}


def test_what_others_leave_idle_is_lent_and_given_back_at_a_boundary() -> None:
    world = a_world().submit(of(ANN, 1, 8, 2000.0), of(ANN, 2, 8, 2500.0)).decide()
    assert world.running == [1, 2]
    assert lanes(world) == {1: Lane.SPOT, 2: Lane.BORROW}
    world.submit(of(BOB, 3, 8, 9000.0)).at(100.0)
    assert world.running == [1, 2]
    world.at(270.0)
    assert world.leaving == [2]
    world.leave(2).at(300.0)
    assert world.running == [1, 3]
    validate(world.cluster)


def test_whoever_borrows_stands_behind_everybody_who_does_not() -> None:
    shorter = [of(ANN, 1, 8, 100.0), of(ANN, 2, 8, 200.0)]
    world = a_world(1).submit(*shorter, of(BOB, 3, 8, 9000.0)).decide()
    assert world.running == [1]
    world.finish(1).at(100.0)
    assert world.running == [2]  # it is within the quota by now, and the shorter one
    world = a_world(2).submit(*shorter, of(BOB, 3, 8, 9000.0)).decide()
    assert world.running == [1, 3]


def test_a_team_that_is_not_named_has_the_quota_of_all_others_or_none() -> None:
    jobs = [of("eve", 1, 8, 100.0), of("eve", 2, 8, 200.0)]
    assert set(lanes(a_world().submit(*jobs).decide()).values()) == {Lane.SPOT}
    assert lanes(a_world(quota="*:8").submit(*jobs).decide())[2] is Lane.BORROW


def test_a_job_that_is_wider_than_its_quota_borrows() -> None:
    world = a_world().submit(of(ANN, 1, 16, 100.0)).decide()
    assert (world.running, lanes(world)) == ([1], {1: Lane.BORROW})


def test_who_borrows_is_told_so() -> None:
    world = a_world(1).submit(of(ANN, 1, 8, 100.0), of(ANN, 2, 8, 200.0)).decide()
    view = View(world.cluster, world.now_s)
    reason = explain(view, world.policy, JobId(2))[0]
    assert (reason.code, reason.need, reason.detail) == (ReasonCode.QUOTA, 8, "team ann")
    assert Glance(view, world.policy).code(world.job(2)) is ReasonCode.QUOTA
