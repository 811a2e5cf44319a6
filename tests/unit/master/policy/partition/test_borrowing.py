"""Quotas of teams that lend: who has a right to its GPUs, who borrows, and who leaves first."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.order.waiting import Sorted
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.adopt import adopt
from dlq_master.policy.partition.borrowing import (
    BorrowingBudget,
    BorrowingRoom,
    LendingLine,
    _first,
    relabelled,
)
from dlq_master.policy.promise.capacity.rules import Promises, Slots
from dlq_master.policy.promise.verdicts.reading import band_of
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.registry import build
from support.builders import World, a_job, a_node
from support.validate import validate

ANN, BOB = "ann", "bob"
EARLY, LATE = Promises(slots=Slots.EARLY), Promises(slots=Slots.LATE)


def a_world(nodes: int = 2, quota: str = "ann:8,bob:8") -> World:
    return World("dlq", nodes, None, team_quota=quota, place="consolidate")


def of(user: str, job_id: int, gpus: int, run_s: float) -> Job:
    return a_job(job_id, gpus, user=user, duration_estimate_s=run_s)


def bands(world: World) -> dict[int, Band]:
    return {int(job_id): job.band for job_id, job in world.cluster.jobs.items()}


def test_what_others_leave_idle_is_lent_and_given_back_at_a_boundary() -> None:
    world = a_world().submit(of(ANN, 1, 8, 2000.0), of(ANN, 2, 8, 2500.0)).decide()
    assert world.running == [1, 2]
    assert bands(world) == {1: Band.SPOT, 2: Band.BORROW}
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
    assert set(bands(a_world().submit(*jobs).decide()).values()) == {Band.SPOT}
    assert bands(a_world(quota="*:8").submit(*jobs).decide())[2] is Band.BORROW


def test_a_job_that_is_wider_than_its_quota_borrows() -> None:
    world = a_world().submit(of(ANN, 1, 16, 100.0)).decide()
    assert (world.running, bands(world)) == ([1], {1: Band.BORROW})


def test_who_borrows_is_told_so() -> None:
    world = a_world(1).submit(of(ANN, 1, 8, 100.0), of(ANN, 2, 8, 200.0)).decide()
    view = View(world.cluster, world.now_s)
    reason = explain(view, world.policy, JobId(2))[0]
    assert (reason.code, reason.need, reason.detail) == (ReasonCode.QUOTA, 8, "team ann")
    assert ReasonSummary(view, world.policy).code(world.job(2)) is ReasonCode.QUOTA


def test_who_is_too_wide_for_a_quota_keeps_nobody_of_the_team_from_it() -> None:
    wide, narrow = of(ANN, 1, 12, 100.0), of(ANN, 2, 4, 5000.0)
    world = a_world().submit(wide, narrow, of(ANN, 3, 8, 6000.0), of(BOB, 4, 4, 9000.0)).decide()
    assert bands(world) == {1: Band.BORROW, 2: Band.SPOT, 3: Band.BORROW, 4: Band.SPOT}
    assert world.running == [2, 3, 4]


def test_a_job_of_a_team_that_borrows_fills_gaps_once_it_is_promised_a_deadline() -> None:
    """Where slots are held early, who is promised takes besides only what nobody else wants."""
    job = of(ANN, 1, 8, 100.0)._replace(promised=0, band=Band.BORROW)
    assert band_of(job, 3, EARLY) is Band.FILL
    assert band_of(job, 3, LATE) is Band.BORROW
    assert band_of(job._replace(band=Band.FILL), 3, LATE) is Band.SPOT  # of another policy before
    assert band_of(job._replace(promised=None), 3, EARLY) is Band.BORROW


def test_another_policy_lets_nobody_stand_behind_a_quota_that_is_gone() -> None:
    world = a_world(1).submit(of(ANN, 1, 8, 100.0), of(ANN, 2, 8, 200.0)).decide()
    assert bands(world)[2] is Band.BORROW
    for policy in (build("dlq"), build("chronus"), build("srtf")):
        after = adopt(world.cluster, world.policy.ordering, policy)
        assert {job.band for job in after.cluster.jobs.values()} == {Band.SPOT}
        validate(after.cluster)
    again = build("dlq", {"team_quota": "ann:16"})
    world.cluster, world.policy = adopt(world.cluster, None, again).cluster, again
    assert set(bands(world.decide()).values()) == {Band.SPOT}


def slow_and_fast(**settings: str) -> World:
    """Sixteen GPUs each of speed 0.25 and of speed 1."""
    nodes = [a_node("s1", 16, "t4-16gb"), a_node("f1", 16, "h100-80gb")]
    world = World("dlq", nodes, None, place="consolidate", **settings)
    world.cluster.speeds = TypeSpeeds({"t4": 0.25})
    return world


def on(kind: str, job_id: int, gpus: int) -> Job:
    request = Request(gpus=gpus, gpu_type=kind)
    return a_job(job_id, user=ANN, request=request, duration_estimate_s=1000.0)


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [("gpus", Band.BORROW, Band.SPOT), ("normalised", Band.SPOT, Band.SPOT)],
)
def test_a_quota_counts_devices_or_normalised_gpus(unit: str, first: Band, second: Band) -> None:
    """Sixteen slow GPUs are four of the reference."""
    jobs = [on("t4-16gb", 1, 16), on("h100-80gb", 2, 12)]
    world = slow_and_fast(team_quota="ann:16", quota_unit=unit).submit(*jobs).decide()
    assert (world.job(1).band, world.job(2).band) == (first, second)
    assert world.running == [1, 2]
    validate(world.cluster)


def test_a_limit_of_normalised_gpus_is_reached_by_fast_ones_and_says_so() -> None:
    jobs = [on("t4-16gb", 1, 16), on("h100-80gb", 2, 4), on("h100-80gb", 3, 1)]
    world = slow_and_fast(team_limit="ann:8", quota_unit="normalised").submit(*jobs[:2]).decide()
    world.submit(jobs[2]).decide()
    assert world.running == [1, 2]
    assert world.job(3).band is Band.LIMIT
    reason = explain(View(world.cluster, world.now_s), world.policy, JobId(3))[0]
    told = (reason.code, reason.resource, reason.need, reason.have)
    assert told == (ReasonCode.TEAM_LIMIT, "gpus", 8, 8.0)


def test_the_last_gpus_of_a_quota_count_though_sums_of_speeds_round() -> None:
    """Twenty times 0.1 are 2."""
    world = slow_and_fast(team_quota="ann:2", team_limit="ann:2", quota_unit="normalised")
    world.cluster.speeds = TypeSpeeds({"t4": 0.1})
    world.cluster.put_node(a_node("s2", 16, "t4-16gb"))
    jobs = [on("t4-16gb", number, 1) for number in range(1, 22)]
    world.submit(*jobs).decide()
    assert world.running == list(range(1, 21))
    assert [world.job(number).band for number in (20, 21)] == [Band.SPOT, Band.LIMIT]


def test_who_may_get_several_types_counts_by_the_fastest_until_it_runs() -> None:
    """No start exceeds the limit, wherever it is."""
    either = a_job(2, 4, user=ANN, duration_estimate_s=500.0)
    world = slow_and_fast(team_limit="ann:4", quota_unit="normalised")
    world.submit(on("t4-16gb", 1, 4)).decide().submit(either).decide()
    assert world.running == [1]
    assert world.job(2).band is Band.LIMIT
    world.finish(1).at(100.0)
    assert world.running == [2]


def test_of_normalised_gpus_as_few_leave_as_make_room() -> None:
    """A better job for two fast GPUs takes the place of eight slow ones."""
    world = slow_and_fast(team_limit="ann:4", quota_unit="normalised", min_run="off")
    world.submit(on("t4-16gb", 1, 8), on("h100-80gb", 2, 2)).decide()
    world.submit(a_job(3, 2, user=ANN, duration_estimate_s=10.0)).at(100.0)
    assert world.job(3).band is Band.LIMIT
    world.at(270.0)
    assert world.leaving == [1]
    world.leave(1).at(300.0)
    assert world.running == [2, 3]


def test_a_decision_does_not_look_at_everybody_of_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [of(ANN, number, 4, 100.0 + number) for number in range(1, 301)]
    world = a_world(2, "ann:8").submit(*jobs).decide()
    taken: list[JobId] = []
    plain = Sorted.__iter__

    def counting(line: Sorted) -> Iterator[JobId]:
        for job_id in plain(line):
            taken.append(job_id)
            yield job_id

    monkeypatch.setattr(Sorted, "__iter__", counting)
    world.finish(1)
    (change,) = relabelled(View(world.cluster, 2.0), world.cluster.running, {ANN: 8})
    assert (change.job_id, change.band) == (3, Band.SPOT)
    assert len(taken) < 10


@pytest.mark.parametrize("rule", ["team_quota", "team_limit"])
def test_so_many_slow_gpus_as_make_up_a_quota_are_within_it(rule: str) -> None:
    """In binary fractions, 0.1 taken twenty times from 2.0 leaves less than nothing."""
    world = World(
        "dlq", [a_node("s1", 24, "t4-16gb")], None, quota_unit="normalised", **{rule: "ann:2"}
    )
    world.cluster.speeds = TypeSpeeds({"t4": 0.1})
    world.submit(*(on("t4-16gb", number, 1) for number in range(1, 22))).decide().decide()
    beside = [number for number, band in bands(world).items() if band is not Band.SPOT]
    assert beside == [21]


def test_a_job_that_returns_to_its_kept_gpus_takes_its_part_of_a_limit_first() -> None:
    lines = [
        LendingLine("u1", Band.SPOT, 0, 1, {JobId(8): 1}, False),
        LendingLine("u1", Band.SPOT, 0, 3, {JobId(9): 2}, False),
    ]

    def first(*returning: JobId) -> set[JobId] | None:
        return _first(lines, BorrowingRoom(BorrowingBudget(3, inf), {}), returning)

    assert (first(), first(JobId(9))) == ({8}, {9})
