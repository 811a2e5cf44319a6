"""The best-effort order of dlq: whatever is known of each job, all of them stand in one line."""

from __future__ import annotations

from math import sqrt

import pytest

from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.model.order.keys import Had, Learned
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.order.expected_left import bound_gpu_s, expected_left
from dlq_master.policy.pipeline import lineup
from dlq_master.policy.reasons.explain import jobs_ahead
from support import full_sort
from support.builders import World, a_job

ELASTIC = Request(gpus=4, sizes=(2, 3, 4))


@pytest.mark.parametrize(
    ("job", "had", "left"),
    [
        # An estimate: what is left of it x sqrt(GPUs); never less than nothing.
        (a_job(1, 4, duration_estimate_s=1000.0), Had(0.0, 0.0), 2000.0),
        (a_job(1, 4, duration_estimate_s=1000.0), Had(3200.0, 800.0), 400.0),
        (a_job(1, 4, duration_estimate_s=1000.0), Had(4800.0, 1200.0), 0.0),
        # Of an elastic job on its base, on which it is half as fast as on what it asked for.
        (a_job(1, request=ELASTIC, duration_estimate_s=1000.0), Had(0.0, 0.0), 2000.0 * sqrt(2)),
        # An estimate goes before the deadline.
        (a_job(1, 1, duration_estimate_s=10.0, steps=strict(900.0)), Had(0.0, 0.0), 10.0),
        # A deadline alone: half of what is left of it, the first of several.
        (a_job(1, 4, steps=strict(900.0)), Had(400.0, 100.0), 800.0),
        (a_job(1, 1, steps=soft([(900.0, 9.0), (1800.0, 5.0)])), Had(0.0, 0.0), 450.0),
        # Who needs longer than it said: by what it has had.
        (a_job(1, 1, steps=strict(900.0)), Had(900.0, 900.0), 3200.0),
        # Nothing: by what it has had.
        (a_job(1, 8), Had(0.0, 0.0), 3200.0),
        (a_job(1, 8), Had(12_800.0, 1600.0), 51_200.0),
        # Less what its stop would cost: one that would lose all its work stays where it began.
        (a_job(1, 8), Had(12_800.0, 1600.0, 0.0, 0.0, 60.0), 12_800.0),
        (a_job(1, 8), Had(1e6, 125_000.0, 0.0, 0.0, 125_060.0), 3200.0),
    ],
)
def test_what_is_expected_to_be_left(job: Job, had: Had, left: float) -> None:
    first, then = expected_left(None)(Learned())(job, had)
    assert first == pytest.approx(left)
    assert then == job.request.base


@pytest.mark.parametrize(
    ("job", "had", "left"),
    [
        (a_job(1, 4), Had(0.0, 0.0), 1200.0),
        (a_job(1, 4), Had(400.0, 100.0), 800.0),
        # A deadline says more: a long job is not measured before short ones are done.
        (a_job(1, 4, steps=strict(9000.0)), Had(400.0, 100.0), 8900.0),
        (a_job(1, 1, steps=strict(100.0)), Had(150.0, 150.0), 150.0),  # it is over
        (a_job(1, request=ELASTIC), Had(0.0, 0.0), 600.0),
        (a_job(1, 4), Had(1200.0, 300.0), 3200.0),  # over, and nothing was learned
        (a_job(1, 4, duration_estimate_s=50.0), Had(0.0, 0.0), 100.0),  # it has an estimate already
    ],
)
def test_who_is_still_to_be_measured_stands_as_one_that_ends_so_soon(
    job: Job, had: Had, left: float
) -> None:
    assert expected_left(300.0)(Learned())(job, had)[0] == pytest.approx(left)


@pytest.mark.parametrize(
    ("attained", "bound"),
    [(0.0, 3200.0), (3199.9, 3200.0), (3200.0, 12_800.0), (12_799.0, 12_800.0), (6e5, 819_200.0)],
)
def test_levels_of_what_was_attained_grow_by_four(attained: float, bound: float) -> None:
    assert bound_gpu_s(attained) == bound


def a_queue() -> World:
    """Eight GPUs, held by one job; the others wait. Both kinds of knowledge, and none, in one
    line.
    """
    world = World("dlq", 1, None, know="unknown").submit(a_job(9, 8)).at(0.0)
    return world.submit(
        a_job(1, 8),  # 3200, and 8 GPUs
        a_job(2, 1, duration_estimate_s=3300.0),
        a_job(3, 2),  # 3200, and 2 GPUs
        a_job(4, 4, duration_estimate_s=1500.0),  # 3000
        a_job(5, 1, steps=strict(5000.0)),  # 2500
        a_job(6, 1, duration_estimate_s=2400.0, steps=strict(9000.0)),
    ).settle_moves()


def line_of(world: World) -> list[int]:
    view = View(world.cluster, world.now_s)
    ahead = {n: jobs_ahead(view, world.policy, world.job(n).job_id) for n in range(1, 7)}
    return sorted(ahead, key=lambda n: ahead[n] or 0)


def test_all_that_may_be_known_stands_in_one_line() -> None:
    assert line_of(a_queue()) == [6, 5, 4, 3, 1, 2]


def test_who_waits_keeps_its_place_while_time_passes() -> None:
    world = a_queue()
    before = line_of(world)
    for now_s in (100.0, 4900.0, 90_000.0):
        world.now_s = now_s
        assert line_of(world) == before
        view = View(world.cluster, now_s)
        assert full_sort.as_lined_up(lineup(view, world.policy)) == full_sort.by_key(view)


def test_who_runs_sinks_by_what_it_has_had_and_gives_way_to_the_newcomer() -> None:
    world = World("dlq", 1, None, know="unknown").submit(a_job(1, 8)).at(0.0)
    world.submit(a_job(2, 8)).at(270.0)
    assert world.running == [1]  # 8 x 270 s are in the first level
    world.at(570.0)  # and 8 x 570 s are not: the other one is next
    assert world.leaving == [1]


@pytest.mark.parametrize("saves", [True, False])
def test_who_would_lose_all_its_work_does_not_sink(saves: bool) -> None:
    world = World("dlq", 1, None, know="unknown").submit(a_job(1, 8, keeps_work=saves)).at(0.0)
    world.submit(a_job(2, 8)).at(270.0)
    world.at(570.0)
    assert world.leaving == ([1] if saves else [])
