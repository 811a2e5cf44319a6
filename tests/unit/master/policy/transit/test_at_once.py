"""`preempt=at-once`: GPUs are taken at any event, with the time to save and at its price.

The node has 8 GPUs, terms are 300 s, a pause and a resume cost 60 s. One level ends at 3,200
GPU-seconds: 400 s on all of them.
"""

from __future__ import annotations

import pytest

from dlq_master.control.placement.policies import live_policy
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.plan import Lapse, Plan, Renew
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.transit.taking import Taking
from support.builders import World, a_job


def las(min_run: str = "1") -> World:
    """The first job runs since the first second, and is demoted at 401 s."""
    world = World("tiresias-las", preempt="at-once", min_run=min_run)
    return world.submit(a_job(1, 8)).at(1.0)


def whole_reasons(world: World, job_id: int) -> dict[ReasonCode, Reason]:
    found = explain(View(world.cluster, world.now_s), world.policy, JobId(job_id))
    return {reason.code: reason for reason in found}


def lapses(plan: Plan) -> list[Lapse]:
    return [change for change in plan.changes if isinstance(change, Lapse)]


# --- the events ----------------------------------------------------------------------------------


def test_an_arrival_takes_the_gpus_of_a_demoted_job_between_two_boundaries() -> None:
    world = las().at(401.0)
    assert world.job(1).level == 1
    world.submit(a_job(2, 8)).now_s = 437.0
    world.settle_moves()
    (lapse,) = lapses(world.plan())
    assert (lapse.at_s, lapse.grace_s, lapse.for_job) == (437.0, 300.0, 2)
    assert world.decide().leaving == [1]
    assert world.running == [], "its GPUs are its own until it has left"
    assert world.leave(1).at(467.0).running == [2]


def test_a_demotion_has_a_timer_of_its_own_and_gives_way_at_once() -> None:
    world = las().submit(a_job(2, 8)).at(150.0)
    assert world.leaving == []
    world.at(270.0)  # the boundary of 300 s
    assert world.wake_at_s == 401.0
    assert world.at(401.0).leaving == [1]


def test_at_a_boundary_it_would_have_waited() -> None:
    world = World("tiresias-las").submit(a_job(1, 8)).at(1.0).submit(a_job(2, 8)).at(270.0)
    assert world.at(401.0).leaving == []
    assert world.at(570.0).leaving == [1]


def test_a_completion_is_such_an_event_too() -> None:
    world = World("tiresias-las", preempt="at-once")
    world.submit(a_job(1, 4), a_job(2, 4)).at(1.0).at(801.0)
    world.submit(a_job(3, 8)).at(850.0)
    assert world.leaving == [1, 2]
    world.finish(1).at(852.0)
    assert (world.leaving, world.running) == ([2], [])
    assert world.leave(2).at(880.0).running == [3]


def test_terms_are_renewed_at_boundaries_as_ever() -> None:
    world = las().at(270.0)
    assert world.attempt(1).lease.term_end_s == 600.0
    world.now_s = 570.0
    world.settle_moves()
    assert any(isinstance(change, Renew) for change in world.plan().changes)


# --- no thrashing --------------------------------------------------------------------------------


def test_a_job_that_has_just_come_back_is_safe_until_it_has_paid_for_that() -> None:
    world = las().at(401.0).submit(a_job(2, 8)).at(450.0).leave(1).at(480.0)
    world.finish(2).at(500.0)
    assert world.running == [1]
    world.submit(a_job(3, 8)).at(520.0)
    assert world.leaving == []
    assert world.wake_at_s == 560.0, "60 s after its start"
    told = whole_reasons(world, 3)[ReasonCode.PROTECTED]
    assert sentence(told, world.job(3)).startswith(
        "job 1 holds GPUs that it would take, and is protected for now"
    )
    assert ReasonCode.WAITING_FOR_BOUNDARY not in whole_reasons(world, 3)
    assert world.at(560.0).leaving == [1]


def test_without_that_guard_it_leaves_again_at_once() -> None:
    world = las(min_run="0").at(401.0).submit(a_job(2, 8)).at(450.0).leave(1).at(480.0)
    world.finish(2).at(500.0).submit(a_job(3, 8)).at(501.0)
    assert world.leaving == [1]


def test_two_jobs_of_one_level_never_take_turns() -> None:
    world = las().submit(a_job(2, 8)).at(401.0).leave(1).at(431.0)
    assert world.running == [2]
    assert world.at(700.0).leaving == []
    assert world.at(831.0).leaving == [2], "it was demoted behind the first, once"
    world.leave(2).at(861.0)
    assert world.running == [1]
    assert world.at(9_000.0).leaving == []


def test_who_waits_claims_gpus_that_are_being_left_and_stops_no_one_else() -> None:
    world = World("tiresias-las", nodes=2, preempt="at-once")
    world.submit(a_job(1, 8), a_job(2, 8)).at(1.0).at(500.0)
    world.submit(a_job(3, 8)).at(501.0)
    assert world.leaving == [2]
    assert world.at(502.0).leaving == [2]
    told = whole_reasons(world, 3)[ReasonCode.WAITING_FOR_RELEASE]
    assert told.blocking_jobs == (2,)
    assert world.job(2).taken is not None


def test_a_silent_job_is_not_stopped_for_anyone() -> None:
    world = las().at(401.0).silence(1)
    world.submit(a_job(2, 8)).at(450.0)
    assert lapses(world.plan()) == []
    assert (world.leaving, world.running) == ([], [])


# --- the rules -----------------------------------------------------------------------------------


def test_no_plan_takes_gpus_without_the_time_to_save_or_of_a_guarded_job() -> None:
    world = las().at(401.0).submit(a_job(2, 8))
    world.now_s = 450.0
    world.settle_moves()
    (lapse,) = lapses(world.plan())
    view = View(world.cluster, world.now_s)
    check_delta(view, Plan((lapse,), None), world.policy)
    with pytest.raises(IllegalPlan, match="no time to save"):
        check_delta(view, Plan((lapse._replace(grace_s=0.0),), None), world.policy)
    with pytest.raises(IllegalPlan, match="protected from the order"):
        check_delta(view._replace(now_s=60.0), Plan((lapse,), None), world.policy)
    assert lapse.key == AttemptKey(JobId(1), 1)


def test_a_master_takes_it_and_guards_who_has_just_started() -> None:
    for name in ("tiresias-las", "tiresias-gittins", "srtf"):
        policy = live_policy(name, {"preempt": "at-once"})
        assert (policy.taking, policy.grid, policy.guards.min_run) == (Taking.AT_ONCE, True, 1.0)
    assert build("tiresias-las", {"preempt": "at-once", "min_run": "off"}).guards.min_run == 0.0
    assert build("tiresias-las").guards.min_run == 0.0


@pytest.mark.parametrize("name", ["afs", "aryl", "themis", "3sigma"])
def test_policies_that_are_made_for_whole_terms_refuse_it(name: str) -> None:
    with pytest.raises(PolicyError, match=f"policy {name} decides at boundaries"):
        build(name, {"preempt": "at-once"})


def test_who_preempts_nobody_may_be_compared_with_those_that_do() -> None:
    assert build("fifo", {"preempt": "at-once"}).taking is Taking.NEVER
