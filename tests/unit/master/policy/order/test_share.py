"""Fair share: who has had less than is due to its team comes first, among those whose class is the
same.
"""

from __future__ import annotations

from typing import Any

import pytest

from dlq_master.model.cluster.frozen import freeze, thaw
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.order.keys import Had, Learned
from dlq_master.model.usage.shares import ShareLedger
from dlq_master.model.view import View
from dlq_master.planner.snapshot import dumps, loads
from dlq_master.policy.order.share import MOST, ShareRules, level_of, ratios, shared, usage, weigh
from dlq_master.policy.registry.registry import build
from support.builders import World, a_job
from support.validate import validate

DAY_S = 86_400.0


def of(team: str, job_id: int, run_s: float, user: str = "", gpus: int = 8, **more: Any) -> Job:
    return a_job(job_id, gpus, user=user or team, team=team, duration_estimate_s=run_s, **more)


def a_world(**settings: str) -> World:
    return World("dlq", 1, None, place="consolidate", **{"team_share": "*:1", **settings})


def test_usage_counts_half_after_each_half_life() -> None:
    ledger = ShareLedger(DAY_S)
    ledger.charge("a/a", 8, 0.0, 100.0)
    now = ledger.at(100.0)["a/a"]
    assert now == pytest.approx(800.0, rel=1e-3), "next to nothing of it is old"
    assert ledger.at(100.0 + DAY_S)["a/a"] == pytest.approx(now / 2)
    ledger.charge("a/a", 8, DAY_S, 100.0 + DAY_S)
    assert ledger.at(100.0 + DAY_S)["a/a"] == pytest.approx(1.5 * now)
    assert ledger.at(30 * DAY_S) == {}, "an account that counts for nothing is forgotten"


def test_usage_in_two_parts_is_that_of_the_whole_in_whatever_order_it_is_told() -> None:
    whole, parts, late = ShareLedger(DAY_S), ShareLedger(DAY_S), ShareLedger(DAY_S)
    whole.charge("a/a", 3, 0.0, 5e4)
    for begin_s, end_s in ((0.0, 2e4), (2e4, 5e4)):
        parts.charge("a/a", 3, begin_s, end_s)
    for begin_s, end_s in ((2e4, 5e4), (0.0, 2e4)):
        late.charge("a/a", 3, begin_s, end_s)
    assert parts.at(6e4) == pytest.approx(whole.at(6e4))
    assert late.at(6e4) == pytest.approx(whole.at(6e4))


def test_who_runs_on_slow_gpus_uses_less() -> None:
    """As it does once it has ended."""
    world = a_world()
    world.cluster.speeds = TypeSpeeds({"H100": 0.25})
    world.submit(of("ann", 1, 5000.0)).decide()
    before = usage(world.cluster, 101.0)
    world.now_s = 101.0
    world.finish(1)
    assert before["ann/ann"] == pytest.approx(0.25 * 8 * 100.0, rel=1e-3)
    assert usage(world.cluster, 101.0) == pytest.approx(before)


def test_a_ratio_is_what_was_used_over_what_is_due() -> None:
    rules = ShareRules(weights={"vision": 2.0, "vision/bob": 3.0})
    used = {"vision/ann": 300.0, "vision/bob": 300.0, "nlp/eve": 300.0}
    found = ratios(used, {"idle/joe"}, rules)
    assert found["vision"] == pytest.approx((600 / 900) / (2 / 4))
    assert found["nlp"] == pytest.approx((300 / 900) / (1 / 4))
    assert found["idle"] == 0.0
    assert found["vision/bob"] == pytest.approx((300 / 600) / (3 / 4))
    assert "nlp/eve" not in found, "alone in its team"
    assert ratios({}, {"a/a"}, rules) == {}


def test_levels_are_steps_of_a_quarter_around_what_is_due() -> None:
    assert [level_of(it) for it in (0.0, 0.5, 0.9, 1.0, 1.1, 1.25, 2.0, 1e9)] == [
        -MOST, -3, 0, 0, 0, 1, 3, MOST,
    ]  # fmt: skip


def test_who_has_had_less_comes_first_and_inside_a_team_the_shorter() -> None:
    world = a_world().submit(of("vision", 1, 4000.0)).decide()
    world.at(3500.0).submit(
        of("vision", 2, 10.0), of("nlp", 3, 5000.0), of("nlp", 4, 4000.0)
    ).decide()
    world.finish(1)
    assert world.at(3600.0).running == [4], "though the job of vision is far shorter"
    validate(world.cluster)


def test_who_runs_is_stopped_for_shares_only_where_others_have_had_far_less() -> None:
    world = a_world().submit(of("vision", 1, 9e4)).decide()
    world.at(10.0).submit(of("nlp", 2, 9.1e4)).decide()
    stays = [world.at(at_s).leaving == [] for at_s in (270.0, 870.0, 1470.0)]
    assert all(stays), "an hour of the cluster is taken to have been used as is due"
    left_s = next(at_s for at_s in range(2070, 20_000, 300) if world.at(at_s).leaving == [1])
    assert 2000 < left_s < 8000


def test_a_team_with_twice_the_share_gets_twice_as_much() -> None:
    world = World("dlq", 1, None, team_share="vision:2,*:1", half_life_s="1e7")
    next_id, now_s, had = 1, 0.0, {"vision": 0, "nlp": 0}
    waiting: dict[str, int] = {}
    for _ in range(60):
        for team in had:
            if team not in waiting:
                world.submit(of(team, next_id, 590.0))
                waiting[team] = next_id
                next_id += 1
        world.at(now_s)
        (runs,) = world.running
        team = world.job(runs).team
        now_s += 600.0
        world.at(now_s - 1.0).finish(runs)
        had[team] += 1
        del waiting[team]
    assert had["vision"] == pytest.approx(40, abs=3)


def test_queues_come_before_shares() -> None:
    world = a_world().submit(of("vision", 1, 4000.0)).decide()
    world.submit(of("vision", 2, 10.0, priority_base=0), of("nlp", 3, 10.0, priority_base=1))
    world.at(3000.0).finish(1)
    assert world.at(3600.0).running == [2]


def test_without_teams_nothing_is_shared_unless_it_is_asked() -> None:
    assert build("dlq").shares is None
    assert build("dlq", {"share": "fair"}).shares == ShareRules()
    assert build("dlq", {"team_share": "a:2"}).ordering.half_life_s == ShareRules().half_life_s
    assert build("dlq", {"team_share": "a:2", "share": "none"}).shares is None
    assert build("chronus", {"team_share": "a:2"}).shares is None, (
        "a preset of a paper is asked for it"
    )
    assert build("chronus", {"share": "fair"}).shares == ShareRules()
    with pytest.raises(ValueError, match="spot=las"):
        build("chronus", {"share": "fair", "spot": "las"})
    with pytest.raises(ValueError, match="setting team_share"):
        build("dlq", {"team_share": "a:0"})


def test_without_an_order_of_its_own_the_shares_decide_and_then_the_arrival() -> None:
    key = shared(None)(Learned(standing={"vision": 2, "vision/ann": -1}))
    assert key(of("vision", 1, 1.0, "ann"), Had(0.0, 0.0)) == (2, -1)
    assert key(of("nlp", 2, 1.0), Had(0.0, 0.0)) == (0, 0)


def test_it_is_weighed_once_in_a_term_and_another_process_sees_the_same() -> None:
    world = a_world().submit(of("vision", 1, 4000.0), of("nlp", 2, 4000.0)).decide()
    world.at(1000.0)
    shares = world.cluster.shares
    assert shares is not None
    assert (shares.term, shares.standing["nlp"] < 0) == (3, True)
    assert weigh(View(world.cluster, 1100.0), ShareRules()) is None
    again = thaw(loads(dumps(freeze(world.cluster))), world.policy.ordering)
    assert again.shares is not None
    assert again.shares.standing == shares.standing
    assert again.stands(world.job(2)) == world.cluster.stands(world.job(2))
    change = weigh(View(again, 1300.0), ShareRules())
    assert change == weigh(View(world.cluster, 1300.0), ShareRules())
