"""A look ahead over few jobs: the order in which they end soonest on average."""

from __future__ import annotations

import random
from itertools import permutations
from math import inf

import pytest

from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.order.foresight import MOST_JOBS, FewJobs, Runner, completions_s, soonest
from dlq_master.policy.order.lateness import ByLateness
from dlq_master.policy.order.stage import KEPT_ORDER
from dlq_master.policy.pipeline import lineup
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from support import full_sort
from support.builders import World, a_job, a_node

HOUR_S = 3600.0
GUESS = Basis(Source.HISTORY, Confidence.LOW)
ELASTIC = Request(gpus=4, sizes=(2, 4))


def runners(seed: int, count: int = 6) -> list[Runner]:
    dice = random.Random(seed)
    return [
        Runner(
            seconds=float(dice.randint(300, 20_000)),
            gpus=dice.choice((1, 1, 2, 3, 4)),
            runs=number == 0,
            stop_s=120.0,
        )
        for number in range(count)
    ]


def test_a_wide_job_goes_before_a_narrow_one_that_would_leave_gpus_idle() -> None:
    narrow = Runner(seconds=4 * HOUR_S, gpus=1)
    wide = Runner(seconds=2 * HOUR_S, gpus=4)
    assert completions_s([narrow, wide], [0, 1], [4], inf) == 10 * HOUR_S
    assert completions_s([narrow, wide], [1, 0], [4], inf) == 8 * HOUR_S
    assert soonest([narrow, wide], [4]) == [1, 0]


@pytest.mark.parametrize("seed", range(12))
def test_no_other_move_gains_and_few_orders_are_better(seed: int) -> None:
    jobs = runners(seed)
    found = soonest(jobs, [4])
    reached_s = completions_s(jobs, found, [4], inf)
    assert reached_s <= completions_s(jobs, range(len(jobs)), [4], inf)
    every_s = [completions_s(jobs, one, [4], inf) for one in permutations(range(len(jobs)))]
    assert reached_s <= 1.05 * min(every_s)
    for at in range(1, len(found)):
        moved = [found[at], *found[:at], *found[at + 1 :]]
        assert completions_s(jobs, moved, [4], inf) >= reached_s - 1e-6


def test_a_stop_has_its_price() -> None:
    runs = Runner(seconds=1000.0, gpus=4, runs=True, stop_s=120.0)
    shorter = Runner(seconds=950.0, gpus=4)
    assert soonest([runs, shorter], [4]) == [0, 1]
    much_shorter = Runner(seconds=700.0, gpus=4)
    assert soonest([runs, much_shorter], [4]) == [1, 0]
    # 700 s; then 120 s and the 1000 s of the job that was stopped.
    assert completions_s([runs, much_shorter], [1, 0], [4], inf) == 700.0 + 1820.0


def test_a_job_that_goes_on_pays_first_and_a_new_one_does_not() -> None:
    goes_on = Runner(seconds=100.0, gpus=1, begins_s=60.0, stop_s=120.0)
    assert completions_s([goes_on], [0], [4], inf) == 160.0
    assert completions_s([Runner(seconds=100.0, gpus=1)], [0], [4], inf) == 100.0


def test_nobody_passes_a_job_that_has_waited_too_long() -> None:
    old = Runner(seconds=4 * HOUR_S, gpus=1, firm=True)
    wide = Runner(seconds=2 * HOUR_S, gpus=4)
    assert soonest([old, wide], [4]) == [0, 1]


def test_gpus_on_two_nodes_are_not_one() -> None:
    three, two = Runner(seconds=100.0, gpus=3, nodes=1), Runner(seconds=100.0, gpus=2, nodes=1)
    assert completions_s([three, three, two], [0, 1, 2], [8], inf) == 300.0
    assert completions_s([three, three, two], [0, 1, 2], [4, 4], inf) == 400.0
    split = Runner(seconds=100.0, gpus=2)
    assert completions_s([three, three, split], [0, 1, 2], [4, 4], inf) == 300.0
    gang = Runner(seconds=100.0, gpus=4, nodes=2)
    assert completions_s([gang, three], [0, 1], [4, 4], inf) == 300.0
    assert completions_s([Runner(seconds=1.0, gpus=6)], [0], [4, 4], inf) == 1.0
    assert completions_s([gang], [0], [8], inf) == inf  # it never fits


def a_contest(*more: Job, **settings: str) -> World:
    """The narrow job comes first in the order by key, the wide one by a look ahead."""
    world = World("dlq", [a_node("n1", 4)], None, **settings)
    narrow = a_job(1, 1, duration_estimate_s=3.9 * HOUR_S)
    return world.submit(narrow, a_job(2, 4, duration_estimate_s=2 * HOUR_S), *more).settle_moves()


def test_the_default_looks_ahead_and_can_be_told_not_to() -> None:
    assert a_contest().at(300.0).running == [2]
    assert a_contest(foresight="off").at(300.0).running == [1]


@pytest.mark.parametrize(
    "others",
    [
        [a_job(3, 1)],  # of unknown run time
        [a_job(3, 1, duration_estimate_s=9 * HOUR_S, basis=GUESS)],
        [a_job(3, request=ELASTIC, duration_estimate_s=9 * HOUR_S)],
        [a_job(3, 1, duration_estimate_s=9 * HOUR_S, priority_base=-1)],
        [a_job(3, request=Request(gpus=1, gpu_type="H100-80GB"), duration_estimate_s=9 * HOUR_S)],
        [a_job(3, 1, duration_estimate_s=9 * HOUR_S, band=Band.SLO)],
        [a_job(3 + n, 1, duration_estimate_s=9 * HOUR_S) for n in range(MOST_JOBS)],
    ],
    ids=["unknown", "a guess", "elastic", "two priorities", "asks for a type", "slot", "many"],
)
def test_nobody_looks_ahead_where_that_would_be_a_guess(others: list[Job]) -> None:
    world = a_contest(*others, know="unknown")
    view = View(world.cluster, 300.0)
    assert full_sort.as_lined_up(lineup(view, world.policy)) == full_sort.by_key(view)


def test_shares_and_limits_of_teams_come_before_a_look_ahead() -> None:
    teams: list[dict[str, str]] = [
        {"share": "fair"},
        {"team_share": "vision:3,nlp:1"},
        {"team_limit": "vision:4"},
        {"team_quota": "vision:4,nlp:4"},
    ]
    for told in teams:
        assert build("dlq", told).order is KEPT_ORDER
    order = build("dlq").order
    assert isinstance(order, ByLateness)
    assert isinstance(order.others, FewJobs)


def test_a_waiting_job_is_passed_only_so_long() -> None:
    """With aging 0.02 a job of 3.9 hours is passed for 50 times as long, and then by nobody."""
    for waited_s, first in ((40 * HOUR_S, 2), (200 * HOUR_S, 1)):
        world = a_contest()
        waiting = World("dlq", [a_node("n1", 4)]).submit(
            a_job(1, 1, duration_estimate_s=3.9 * HOUR_S, queued_s=waited_s),
            a_job(2, 4, duration_estimate_s=2 * HOUR_S, queued_s=waited_s),
        )
        assert world.at(300.0).running == [2]
        assert waiting.settle_moves().at(300.0).running == [first]


def test_it_is_told_for_the_order_that_it_improves() -> None:
    with pytest.raises(PolicyError, match="'foresight' needs spot=expected"):
        build("dlq", {"spot": "srtf", "foresight": "on"})
    with pytest.raises(PolicyError, match="expected one of off, on"):
        build("dlq", {"foresight": "maybe"})
    with pytest.raises(PolicyError, match="has no setting 'foresight'"):
        build("srtf", {"foresight": "on"})
