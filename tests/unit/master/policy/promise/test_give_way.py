"""Slots that are planned for a job without a promise give way to what is promised later."""

from __future__ import annotations

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.plan import NextSlot, Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.kept_slots import kept_slot
from dlq_master.policy.promise.verdicts.proof import broken
from support.builders import World, a_waiting_job

NEXT = (Segment(1, 2),)
REASON = Reason(ReasonCode.GUARANTEED)


def due(number: int, promised: int | None, slots: tuple[Segment, ...] = NEXT) -> Job:
    """A job as wide as the node, which needs the next slot."""
    return a_waiting_job(
        number, 8, duration_estimate_s=600.0, steps=strict(9_000.0), slots=slots,
        promised=promised, verdict="worth" if promised is None else "holes", margin=0.0,
    )  # fmt: skip


@pytest.fixture
def world() -> World:
    """One node of eight GPUs; slot 0 has been decided."""
    world = World("chronus", nodes=1, know="known", be_floor="0")
    world.cluster.slot = 0
    return world


def promising(number: int) -> Reserve:
    return Reserve(JobId(number), Band.FILL, NEXT, 0, "holes", REASON, 0.0)


@pytest.mark.parametrize(("promised", "fault"), [(None, ""), (0, "slot 1 wants 8 GPUs more")])
def test_a_promise_may_take_the_slots_of_who_has_none(
    world: World, promised: int | None, fault: str
) -> None:
    rules = world.policy.promises
    assert rules is not None
    for job in (due(1, promised), due(2, None, ())._replace(verdict="")):
        world.cluster.put_job(job)
    said = broken(View(world.cluster, 10.0), [promising(2)], rules)
    assert said == "" if not fault else fault in said


def test_by_the_kept_plan_whoever_is_promised_stands_in_the_slot(world: World) -> None:
    rules = world.policy.promises
    assert rules is not None
    for job in (due(1, None), due(2, 0)):
        world.cluster.put_job(job)
    begun, *moved = kept_slot(View(world.cluster, 1_180.0), rules, 1)
    assert isinstance(begun, NextSlot)
    stands = {one.job_id: (one.band, one.slots) for one in moved if isinstance(one, Reserve)}
    assert stands[JobId(2)] == (Band.SLO, NEXT)
    assert stands[JobId(1)][0] is not Band.SLO
