"""Jobs that name a cost of being late: by what waiting loses, among themselves."""

from __future__ import annotations

import random

import pytest

from dlq_master.model.jobs.job import Job, Lateness
from dlq_master.model.resources import CORE_TYPE, Request
from dlq_master.model.view import View
from dlq_master.policy.order import lateness
from dlq_master.policy.order.foresight import FewJobs
from dlq_master.policy.order.lateness import ByLateness
from dlq_master.policy.order.stage import KEPT_ORDER
from dlq_master.policy.pipeline import lineup
from dlq_master.policy.registry.registry import build
from support import full_sort
from support.builders import World, a_job, a_node
from support.validate import validate

HOUR_S = 3600.0


def a_costly_job(job_id: int, hours: float | None, due_h: float, weight: float) -> Job:
    """`hours` None: nobody knows how long it runs."""
    known_s = None if hours is None else hours * HOUR_S
    cost = Lateness(due_h * HOUR_S, weight)
    return a_job(job_id, 1, duration_estimate_s=known_s, lateness=cost)


def a_line(*jobs: Job, **settings: str) -> World:
    """They wait for one GPU."""
    return World("dlq", [a_node("n1", 1)], None, **settings).submit(*jobs).settle_moves()


def waiting(world: World, now_s: float = 0.0) -> list[int]:
    order = lineup(View(world.cluster, now_s), world.policy)
    return [job_id for _, job_id, waits in full_sort.as_lined_up(order) if waits]


def test_the_dearer_of_two_late_jobs_goes_first_though_it_is_longer() -> None:
    cheap = a_costly_job(1, 1.0, due_h=0.5, weight=1.0)
    dear = a_costly_job(2, 2.0, due_h=0.5, weight=3.0)
    assert waiting(a_line(cheap, dear)) == [2, 1]
    assert waiting(a_line(cheap, dear._replace(lateness=Lateness(1800.0, 1.9)))) == [1, 2]


def test_a_job_with_time_to_spare_lets_a_late_one_pass_until_its_own_hour_comes() -> None:
    short = a_costly_job(1, 1.0, due_h=20.0, weight=1.0)
    late = a_costly_job(2, 2.0, due_h=1.0, weight=1.0)
    world = a_line(short, late)
    assert waiting(world) == [2, 1]
    assert waiting(world, 19 * HOUR_S) == [1, 2]


def test_they_take_only_each_others_places() -> None:
    """A job without such a cost stands where the order by key puts it."""
    between = a_job(3, 1, duration_estimate_s=1.5 * HOUR_S)
    short = a_costly_job(1, 1.0, due_h=100.0, weight=1.0)
    late = a_costly_job(2, 2.0, due_h=1.0, weight=1.0)
    assert waiting(a_line(short, between, late)) == [2, 3, 1]
    assert waiting(a_line(short, between)) == [1, 3]


def test_a_job_of_unknown_length_is_expected_to_need_half_of_the_time_to_its_due_date() -> None:
    soon = a_costly_job(1, None, due_h=4.0, weight=1.0)
    far = a_costly_job(2, None, due_h=40.0, weight=1.0)
    middling = a_costly_job(3, 3.0, due_h=4.0, weight=1.0)
    assert waiting(a_line(far, middling, soon)) == [1, 3, 2]


def test_nobody_passes_a_job_that_has_waited_too_long() -> None:
    cheap = a_costly_job(1, 1.0, due_h=0.5, weight=0.001)
    dear = a_costly_job(2, 2.0, due_h=0.5, weight=3.0)
    assert waiting(a_line(cheap, dear), 49 * HOUR_S) == [2, 1]
    assert waiting(a_line(cheap, dear), 51 * HOUR_S) == [1, 2]


def test_a_running_job_gives_way_to_one_that_loses_more() -> None:
    runs = a_costly_job(1, 5.0, due_h=100.0, weight=1.0)
    world = World("dlq", [a_node("n1", 1)]).submit(runs).decide()
    assert world.running == [1]
    world.submit(a_costly_job(2, 6.0, due_h=1.0, weight=9.0)).at(290.0)
    assert world.leaving == [1]
    assert world.leave(1).at(300.0).running == [2]


def test_a_cost_of_nothing_comes_last() -> None:
    free = a_costly_job(1, 1.0, due_h=0.5, weight=0.0)
    assert waiting(a_line(free, a_costly_job(2, 2.0, due_h=90.0, weight=1.0))) == [2, 1]


def test_a_user_overtakes_nobody_else_by_a_high_cost_or_an_early_date() -> None:
    theirs = a_costly_job(1, 1.0, due_h=20.0, weight=1.0)
    own = a_costly_job(2, 2.0, due_h=0.5, weight=1e9)
    assert waiting(a_line(theirs, own)) == [2, 1]
    assert waiting(a_line(theirs, own._replace(user="mallory"))) == [1, 2]


def test_the_least_cost_and_cores_that_count_for_nothing_have_a_place() -> None:
    least = a_costly_job(1, 1.0, due_h=0.5, weight=5e-324)
    dear = a_costly_job(2, 2.0, due_h=0.5, weight=1.0)
    assert waiting(a_line(least, dear)) == [2, 1]
    cores = Request(gpus=4, gpu_type=CORE_TYPE)
    assert cores.weighed(cores.base) == 0.0
    first = a_costly_job(1, 2.0, due_h=0.5, weight=1.0)._replace(request=cores)
    second = a_costly_job(2, 3.0, due_h=0.5, weight=9.0)._replace(request=cores)
    world = World("dlq", [a_node("n1", 1, cores=8)], None).submit(first, second).settle_moves()
    assert waiting(world) == [2, 1]


def test_many_jobs_keep_the_order_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    short = a_costly_job(1, 1.0, due_h=100.0, weight=1.0)
    world = a_line(short, a_costly_job(2, 2.0, due_h=1.0, weight=1.0))
    assert waiting(world) == [2, 1]
    monkeypatch.setattr(lateness, "MOST_COSTLY", 1)
    assert waiting(world) == [1, 2]
    monkeypatch.setattr(lateness, "MOST_COSTLY", 2)
    monkeypatch.setattr(lateness, "MOST_WAITING", 1)
    assert waiting(world) == [1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_others_keep_their_places_and_the_clusters_own_lines_stay_as_they_are(seed: int) -> None:
    dice = random.Random(seed)
    jobs = [
        a_costly_job(number, dice.uniform(0.2, 9.0), dice.uniform(0.2, 30.0), dice.uniform(0, 5))
        if dice.random() < 0.6
        else a_job(number, 1, duration_estimate_s=dice.uniform(600.0, 30_000.0))
        for number in range(1, 25)
    ]
    world = World("dlq", [a_node("n1", 4)], None).submit(*jobs).settle_moves()
    view = View(world.cluster, 900.0)
    kept = full_sort.as_lined_up(KEPT_ORDER.lineup(view, 1.0))
    found = full_sort.as_lined_up(lineup(view, world.policy))
    costly = set(world.cluster.costly)
    assert [it for it in found if it[1] not in costly] == [it for it in kept if it[1] not in costly]
    assert [it[1] in costly for it in found] == [it[1] in costly for it in kept]
    assert sorted(found) == sorted(kept)
    assert full_sort.as_lined_up(KEPT_ORDER.lineup(view, 1.0)) == kept
    validate(world.cluster)


def test_it_belongs_to_the_order_by_expected_work() -> None:
    order = build("dlq", {"foresight": "off"}).order
    assert isinstance(order, ByLateness)
    assert order.others is KEPT_ORDER
    told = build("dlq").order
    assert isinstance(told, ByLateness)
    assert isinstance(told.others, FewJobs)
    assert build("dlq", {"spot": "srtf"}).order is KEPT_ORDER
    assert build("srtf").order is KEPT_ORDER
