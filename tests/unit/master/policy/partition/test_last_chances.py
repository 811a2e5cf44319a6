"""A deadline that was refused gets slots when it would be late in any others, if promises leave
these.
"""

from __future__ import annotations

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_steps import Reserved
from dlq_master.model.jobs.reward import soft, strict
from support.builders import World, a_job

SLOT_S = 1200.0
# An hour of work and a stop take four slots. With one to spare they begin in slot 6 at the latest.
RUN_S, DUE_S, CHANCE = 3600.0, 13_200.0, 6


def asks(job_id: int, gpus: int, run_s: float, due_s: float) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=strict(due_s))


def a_world(asked: Job | None = None, /, *, verdict: str = "worth", **more: str) -> World:
    """One node. Job 1 was refused a promise, and job 2 ends sooner, so it comes before job 1."""
    told = {"margin": "0", "be_floor": "0", "guarantee": "fitting", "aging": "off", **more}
    world = World("dlq", 1, None, **told)
    world.submit(a_job(2, 8, duration_estimate_s=3000.0))
    world.submit(asks(1, 8, RUN_S, DUE_S) if asked is None else asked)
    world.decide()
    event = Reserved(band=Band.SPOT, verdict=verdict)
    drive.step_job(world.cluster, JobId(1), event, world.now_s)
    return world


def boundary(world: World, slot: int) -> World:
    """The slot is decided, and whoever is told to leave has left."""
    world.at(slot * SLOT_S - 30.0)
    world.leave(*world.leaving)
    return world.at(slot * SLOT_S)


def test_a_refused_job_gets_slots_at_its_last_chance_and_not_before() -> None:
    world = a_world()
    assert (boundary(world, CHANCE - 1).job(1).band, world.running) == (Band.SPOT, [2])
    boundary(world, CHANCE)
    assert (world.job(1).band, world.job(1).promised, world.running) == (Band.SLO, None, [1])
    held = world.job(1).slots
    assert (held[0].begin, held[-1].end) == (CHANCE, CHANCE + 4)
    assert boundary(world, CHANCE + 1).running == [1], "it goes on, though it has a slot to spare"


@pytest.mark.parametrize(
    ("verdict", "more"),
    [
        ("worth", {"select": "guaranteed"}),
        ("quota", {}),  # its team has as many GPUs promised as it may
        ("overrun", {}),  # nobody knows how long it needs
    ],
)
def test_nobody_else_has_a_last_chance(verdict: str, more: dict[str, str]) -> None:
    world = boundary(a_world(verdict=verdict, **more), CHANCE)
    assert (world.job(1).band, world.running) == (Band.SPOT, [2])


def test_a_job_that_is_late_in_any_slot_stands_in_line() -> None:
    world = boundary(a_world(), CHANCE + 2)
    assert (world.job(1).band, world.running) == (Band.SPOT, [2])


def test_a_soft_deadline_has_a_chance_for_each_step() -> None:
    steps = soft([(DUE_S, 100.0), (DUE_S + 3 * SLOT_S, 50.0)])
    world = a_world(a_job(1, 8, duration_estimate_s=RUN_S, steps=steps))
    boundary(world, CHANCE + 2)
    assert world.job(1).band is Band.SPOT, "the first is lost, and the second may wait"
    assert boundary(world, CHANCE + 3).job(1).band is Band.SLO


def test_a_promise_of_the_same_slots_comes_first() -> None:
    rival = asks(3, 8, 9 * SLOT_S - 200.0, 11 * SLOT_S)
    world = a_world().submit(rival).decide()
    for slot in range(1, CHANCE + 1):
        boundary(world, slot)
    assert (world.job(3).promised, world.job(3).band) == (0, Band.SLO)
    assert world.job(1).band is Band.SPOT


def test_two_share_what_is_left_and_the_one_that_earns_more_for_a_gpu_comes_first() -> None:
    world = a_world(asks(1, 8, RUN_S, DUE_S))
    world.submit(asks(3, 1, RUN_S, DUE_S)).decide()
    drive.step_job(world.cluster, JobId(3), Reserved(band=Band.SPOT, verdict="plan"), world.now_s)
    boundary(world, CHANCE)
    assert (world.job(3).band, world.job(1).band) == (Band.SLO, Band.SPOT)
