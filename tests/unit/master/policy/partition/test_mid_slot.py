"""A job for which the next slot is too late enters the present one at a boundary of best effort."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.view import View
from dlq_master.policy.partition.mid_slot import entries
from support.builders import World, a_job

SLOT_S, TERM_S = 1200.0, 300.0
RUN_S = 1500.0  # and a stop of a minute
ENTERS_S = 2 * SLOT_S + TERM_S


def asks(job_id: int, gpus: int, run_s: float, due_s: float) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=strict(due_s))


def a_world(due_s: float, **more: str) -> World:
    """One node, on which job 2 runs, and ends sooner than job 1, which comes in slot 2."""
    told = {"margin": "0", "be_floor": "0", "guarantee": "fitting", "aging": "off", **more}
    world = World("dlq", 1, None, **told)
    world.submit(a_job(2, 8, duration_estimate_s=4000.0)).decide()
    boundary(world, 2 * SLOT_S)
    world.at(2 * SLOT_S + 10.0)
    job = asks(1, 8, RUN_S, due_s)
    return world.submit(job._replace(submit_time_s=world.now_s)).decide()


def boundary(world: World, at_s: float) -> World:
    """What ends there is decided, and whoever is told to leave has left."""
    world.at(at_s - 30.0)
    world.leave(*world.leaving)
    return world.at(at_s)


def test_a_refused_job_does_not_wait_for_a_slot_that_is_too_late() -> None:
    world = a_world(2000.0)
    assert (world.job(1).verdict, world.job(1).band, world.running) == ("reach", Band.SPOT, [2])
    boundary(world, ENTERS_S)
    assert (world.job(1).band, world.job(1).promised, world.running) == (Band.SLO, None, [1])
    assert (world.job(1).slots[0].begin, world.job(1).slots[-1].end) == (2, 4)


def test_the_floor_of_best_effort_is_open_to_last_chances() -> None:
    world = a_world(2000.0, be_floor="0.1")  # its only node
    assert world.job(1).verdict == "width"
    assert boundary(world, ENTERS_S).running == [1]


@pytest.mark.parametrize(
    ("due_s", "more"),
    [
        (1800.0, {}),  # it is late at this boundary already
        (2000.0, {"select": "guaranteed"}),
        (3000.0, {}),  # the next slot will do
    ],
)
def test_no_other_job_enters(due_s: float, more: dict[str, str]) -> None:
    world = boundary(a_world(due_s, **more), ENTERS_S)
    assert (world.job(1).band, world.running) == (Band.SPOT, [2])


def test_a_promise_of_later_slots_comes_first() -> None:
    world = a_world(2000.0)
    world.submit(asks(3, 8, SLOT_S - 60.0, 4 * SLOT_S)).decide()
    assert (world.job(3).promised, world.job(3).slots[0].begin) == (0, 3)
    assert boundary(world, ENTERS_S).job(1).band is Band.SPOT


def test_it_goes_on_in_the_next_slot() -> None:
    world = boundary(a_world(2000.0), ENTERS_S)
    boundary(world, 3 * SLOT_S)
    assert (world.running, world.cluster.slot, world.job(1).band) == ([1], 3, Band.SLO)


def test_a_job_that_comes_within_the_lead_is_seen_at_the_same_boundary() -> None:
    world = a_world(1800.0)
    world.at(ENTERS_S - 20.0)
    late = asks(4, 8, RUN_S, 1900.0)._replace(submit_time_s=world.now_s)
    world.submit(late).decide()
    assert world.job(4).band is Band.SLO


@pytest.mark.parametrize(
    "meanwhile", [{"promised": 0, "verdict": "holes"}, {"band": Band.LIMIT}], ids=str
)
def test_a_job_that_was_seen_is_looked_at_again_once_it_has_changed(
    meanwhile: dict[str, Any],
) -> None:
    world = a_world(2000.0)
    view, promises = View(world.cluster, ENTERS_S - 20.0), world.policy.promises
    assert promises is not None
    assert [change.job_id for change in entries(view, promises)] == [1]
    world.cluster.put_job(world.job(1)._replace(**meanwhile))
    assert entries(view, promises) == []
