"""Guards against thrashing: who may not be preempted yet, or any more, and what outranks that.

Nodes have 8 GPUs, terms are 300 s, a boundary is decided 30 s before it, a pause and a resume cost
60 s unless they were measured.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from dlq_master.model.attempts.attempt_steps import PreemptedLost
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import step_attempt, stop_attempt
from dlq_master.model.cluster.frozen import freeze, thaw
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, Taken
from dlq_master.model.jobs.reward import strict
from dlq_master.model.lease import Terms
from dlq_master.model.plan import Lapse, Plan
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.sentence import preempted, sentence
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.stop_costs import pause_and_resume_s, stop_s
from dlq_master.policy.transit.verbs import rule_of
from support.builders import World, a_job, a_waiting_job

SHORT, LONG = 100.0, 50_000.0


def work(job_id: int, run_s: float, gpus: int = 8, **fields: Any) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, **fields)


def displaced(world: World, times: int, victim: int = 1) -> None:
    """Let short jobs take the victim's GPUs, one at each boundary."""
    for number in range(times):
        start_s = 600.0 * number
        world.at(start_s + 1.0)
        assert victim in world.running
        world.submit(work(100 + number, SHORT)).at(start_s + 270.0)
        assert world.leaving == [victim]
        world.now_s = start_s + 300.0
        world.leave(victim).at(start_s + 300.0)
        world.finish(100 + number).at(start_s + 400.0)


# --- minimum run time --------------------------------------------------------------------------


@pytest.mark.parametrize(("min_run", "leaves"), [("3", [1]), ("4", [])])
def test_who_has_run_for_too_short_a_time_keeps_its_gpus(min_run: str, leaves: list[int]) -> None:
    world = World("srtf", min_run=min_run).submit(work(1, LONG)).at(100.0)
    world.submit(work(2, SHORT)).at(
        270.0
    )  # it will have run 200 s: more than 3 x 60, less than 4 x
    assert world.leaving == leaves
    if not leaves:
        assert world.at(570.0).leaving == [1], "at the next boundary it has run long enough"


def test_what_a_stop_costs_is_measured_where_that_is_known() -> None:
    cheap = (
        World("srtf", min_run="4").submit(work(1, LONG, saves=(2.0, 4.0), resumes=(5.0,))).at(100.0)
    )
    assert cheap.submit(work(2, SHORT)).at(270.0).leaving == [1]  # 200 s are more than 4 x 8
    dear = (
        World("srtf", min_run="1").submit(work(1, LONG, saves=(20.0,), resumes=(190.0,))).at(100.0)
    )
    assert dear.submit(work(2, SHORT)).at(270.0).leaving == []  # and less than 210


# --- hysteresis --------------------------------------------------------------------------------


@pytest.mark.parametrize(("other_s", "leaves"), [(900.0, []), (600.0, [1])])
def test_a_challenger_has_to_be_better_by_more_than_the_stop_costs(
    other_s: float, leaves: list[int]
) -> None:
    world = World("srtf", hysteresis="2").submit(work(1, 1000.0)).at(1.0)
    world.submit(work(2, other_s)).at(270.0)  # 731 s of the first are left: 120 s closer, 611
    assert world.leaving == leaves


def test_who_cannot_save_stands_ahead_by_all_that_it_would_lose() -> None:
    world = World("srtf", hysteresis="1")
    world.submit(work(1, LONG, keeps_work=False)).at(1.0)
    attempt = world.attempt(1)
    assert stop_s(world.cluster, world.job(1), attempt, 271.0) == 60.0 + 270.0
    assert stop_s(world.cluster, world.job(1)._replace(keeps_work=True), attempt, 271.0) == 60.0


# --- maximum preemptions -----------------------------------------------------------------------


def test_after_so_many_preemptions_a_job_runs_to_its_end() -> None:
    world = World("srtf", max_preemptions="2").submit(work(1, LONG))
    displaced(world, 2)
    assert (world.job(1).displaced, world.job(1).preemptions) == (2, 2)
    world.at(1201.0).submit(work(9, SHORT)).at(1470.0)
    assert world.leaving == []
    assert world.at(2070.0).running == [1]


@pytest.mark.parametrize("cause", [StopCause.DRAIN, StopCause.REQUEUE])
def test_what_is_no_preemption_by_the_order_does_not_count(cause: StopCause) -> None:
    world = World("srtf", max_preemptions="1").submit(work(1, LONG)).at(1.0)
    stop_attempt(world.cluster, world.attempt(1).key, cause, world.now_s)
    world.leave(1).at(2.0)
    assert (world.job(1).displaced, world.job(1).preemptions, world.job(1).taken) == (0, 1, None)
    world.lose(1).at(3.0)
    assert world.job(1).displaced == 0
    world.submit(work(2, SHORT)).at(270.0)
    assert world.leaving == [1]


def test_a_job_whose_node_is_lost_while_it_leaves_was_not_preempted() -> None:
    world = World("srtf").submit(work(1, LONG)).at(1.0).submit(work(2, SHORT)).at(270.0)
    assert world.job(1).taken == Taken(JobId(2), "ada", "the shortest remaining time first", 270.0)
    world.lose(1)
    assert (world.job(1).displaced, world.job(1).taken) == (0, None)


# --- what outranks guards ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["chronus", "dlq"])
def test_a_promise_outranks_all_of_them(policy: str) -> None:
    more = {
        "min_run": "100",
        "max_preemptions": "1",
        "guarantee": "fitting",
        "margin": "0",
        "be_floor": "0",
    }
    world = World(policy, 1, None, know="known", **more).submit(work(1, LONG, displaced=5)).at(1.0)
    world.submit(work(2, SHORT)).at(270.0)
    assert world.leaving == [], "it is protected from the order"
    world.submit(work(3, 1000.0, steps=strict(2000.0), user="bob"))
    leaving = []
    for at_s in (271.0, 570.0, 870.0, 1170.0):
        leaving += world.at(at_s).leaving
        if leaving:
            break
    assert leaving == [1]
    taken = world.job(1).taken
    assert taken is not None
    assert (taken.by, taken.rule[:19]) == (JobId(3), "a promised deadline")
    assert world.job(3).promised == 0


def test_what_a_promise_has_taken_counts_and_the_order_then_leaves_the_job_alone() -> None:
    words = {"min_run": "off", "guarantee": "fitting", "margin": "0", "be_floor": "0"}
    world = World("dlq", 1, None, know="known", max_preemptions="1", **words)
    world.submit(work(1, LONG)).at(1.0)
    world.submit(work(2, 1000.0, steps=strict(2400.0), user="bob"))
    while not world.leaving:
        world.at(world.now_s + 29.0)
    assert world.leaving == [1]
    world.now_s = 300.0 * (world.now_s // 300.0 + 1)
    world.leave(1).decide()
    assert (world.running, world.job(1).displaced) == ([2], 1)
    world.at(world.now_s + 1000.0).finish(2).decide()
    assert world.running == [1]
    world.submit(work(3, SHORT)).at(300.0 * (world.now_s // 300.0 + 2) - 30.0)
    assert (world.leaving, world.running) == ([], [1])


def test_who_borrows_is_preempted_as_often_as_owners_want() -> None:
    world = World("dlq", know="known", max_preemptions="1", min_run="off", team_quota="bob:8,*:0")
    world.submit(work(1, LONG, displaced=5)).at(1.0)
    assert world.job(1).band is Band.BORROW
    world.submit(work(2, SHORT, user="bob")).at(270.0)
    assert world.leaving == [1]


def test_a_plan_that_takes_from_the_protected_is_illegal() -> None:
    world = World("srtf", max_preemptions="1").submit(work(1, LONG, displaced=1)).at(1.0)
    world.submit(work(2, SHORT))
    key = world.attempt(1).key
    lapse = Lapse(key, 300.0, 60.0, JobId(2), Reason(ReasonCode.OUTRANKED))
    with pytest.raises(IllegalPlan, match="protected"):
        check_delta(View(world.cluster, 270.0), Plan((lapse,)), world.policy)
    moved = lapse._replace(reason=Reason(ReasonCode.MAKES_WAY))
    check_delta(View(world.cluster, 270.0), Plan((moved,)), world.policy)


# --- aging -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "aging", "bound_s"),
    [
        ("srtf", "off", inf),
        ("srtf", "0.1", 30_000.0),
        ("srsf", "0.5", 48_000.0),  # its unit is GPU-seconds
        ("dlq", "0.25", 33_942.0),  # and here seconds x sqrt(GPUs)
    ],
)
def test_nobody_waits_for_longer_than_its_work_over_the_rate(
    policy: str, aging: str, bound_s: float
) -> None:
    """A job of 3,000 s behind jobs of 290 s of which one always waits."""
    known = {"know": "known"} if policy == "dlq" else {}
    world = World(policy, 1, None, aging=aging, **known).submit(work(1, 290.0), work(2, 3000.0))
    waited_s = inf
    for number in range(1, 180):
        world.submit(work(10 + number, 290.0)).at(300.0 * number)
        if 2 in world.running:
            waited_s = world.now_s
            break
        world.finish(*world.running)
        world.decide()
    assert waited_s <= bound_s + 600.0
    assert (waited_s == inf) is (bound_s == inf)


def test_who_runs_is_not_passed_by_those_whom_it_has_passed() -> None:
    world = World("srtf", aging="0.99").submit(work(1, 3000.0)).at(1.0)
    world.submit(work(2, 3100.0), work(3, 3200.0))
    for number in range(1, 9):
        assert world.at(300.0 * number - 30.0).leaving == []
    assert world.running == [1]


def test_the_wait_of_all_turns_counts() -> None:
    world = World("srtf").submit(work(1, LONG)).at(1.0).submit(work(2, SHORT)).at(270.0)
    world.now_s = 300.0
    world.leave(1).at(300.0)
    world.finish(2).at(350.0)
    assert world.job(1).queued_s == 50.0
    assert world.job(2).queued_s == 30.0


# --- told --------------------------------------------------------------------------------------


def test_the_victim_learns_by_whom_by_which_rule_and_what_it_lost() -> None:
    world = World("srtf").submit(work(1, LONG)).at(1.0)
    world.submit(work(2, SHORT, user="alice")).at(270.0)
    job = world.job(1)
    assert job.taken is not None
    assert preempted(job.taken) == (
        "it is leaving its GPUs for job 2 (alice) by rule: the shortest remaining time first"
    )
    world.now_s = 300.0
    step_attempt(world.cluster, world.attempt(1).key, PreemptedLost(), 300.0)
    taken = world.job(1).taken
    assert taken is not None
    assert taken.lost_s == 299.0
    rule = "preempted by job 2 (alice) by rule: the shortest remaining time first"
    told = f"{rule}; lost up to 299 s of work"
    assert preempted(taken) == told
    assert preempted(taken, "alice").startswith("preempted by job 2 (yours)")
    (why,) = [
        reason
        for reason in explain(View(world.cluster, 301.0), world.policy, JobId(1))
        if reason.code is ReasonCode.PREEMPTED
    ]
    assert sentence(why, world.job(1)) == told
    world.decide()
    assert world.running == [2]


def test_whoever_waits_for_the_protected_is_told_so() -> None:
    world = (
        World("srtf", max_preemptions="1", min_run="2").submit(work(1, LONG, displaced=1)).at(1.0)
    )
    world.submit(work(2, SHORT)).at(100.0)
    found = explain(View(world.cluster, 100.0), world.policy, JobId(2))
    (why,) = [reason for reason in found if reason.code is ReasonCode.PROTECTED]
    assert why.blocking_jobs == (JobId(1),)
    assert "is preempted 1 times at most" in sentence(why, world.job(2))
    assert ReasonCode.WAITING_FOR_BOUNDARY not in [reason.code for reason in found]


@pytest.mark.parametrize(
    ("loser", "winner", "rule"),
    [
        ({}, {"band": Band.SLO}, "a promised deadline"),
        ({}, {"band": Band.PROFILE}, "a trial"),
        ({"band": Band.BORROW}, {}, "quota"),
        ({"band": Band.FILL}, {}, "no slot"),
        ({}, {"promoted": True}, "it has waited"),
        ({"priority_base": 3}, {"priority_base": 1}, "the priority"),
        ({}, {}, "the least expected work first"),
    ],
)
def test_the_rule_is_the_first_in_which_the_claims_differ(
    loser: dict[str, Any], winner: dict[str, Any], rule: str
) -> None:
    policy = build("dlq")
    assert rule_of(policy.rule, a_waiting_job(1, **loser), a_waiting_job(2, **winner)).startswith(
        rule
    )


# --- costs -------------------------------------------------------------------------------------


def test_a_family_shares_what_was_measured_and_keeps_it_where_a_plan_is_made() -> None:
    cluster = Cluster(build("srtf").ordering, Terms())
    known = a_waiting_job(1, family="bert", saves=(10.0, 30.0, 20.0), resumes=(4.0, 6.0))
    cluster.put_job(known)
    new = cluster.put_job(a_waiting_job(2, family="bert"))
    stranger = cluster.put_job(a_waiting_job(3, family="gpt"))
    assert pause_and_resume_s(cluster, new) == 20.0 + 5.0
    assert pause_and_resume_s(cluster, stranger) == 60.0
    cluster.put_job(known._replace(saves=(10.0, 30.0, 20.0, 40.0)))
    assert pause_and_resume_s(cluster, new) == 25.0 + 5.0
    again = thaw(freeze(cluster, (new,)), build("srtf").ordering)
    assert pause_and_resume_s(again, new) == 30.0


# --- settings ----------------------------------------------------------------------------------


def test_the_presets_of_papers_have_no_guards_unless_asked() -> None:
    for name in PRESETS:
        policy: Policy = build(name)
        assert any(policy.guards) is (name == "dlq"), name
    assert tuple(build("tiresias-las", {"min_run": "3"}).guards) == (3.0, None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("policy", "words", "told"),
    [
        ("fifo", {"min_run": "2"}, "no setting 'min_run'"),
        ("sf", {"hysteresis": "2"}, "no setting 'hysteresis'"),
        ("srtf", {"max_preemptions": "0"}, "max_preemptions=0: expected a whole number"),
        ("srtf", {"min_run": "-1"}, "min_run=-1: expected a positive number"),
        ("srtf", {"aging": "2"}, "aging=2: expected a number from 0 to 1"),
        ("dlq", {"spot": "las", "aging": "0.1"}, "'aging' needs an order by what is left"),
    ],
)
def test_a_slip_is_named(policy: str, words: dict[str, str], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        build(policy, words)


def test_another_order_does_without_what_the_default_has() -> None:
    assert build("dlq", {"spot": "las"}).guards.min_run == 2.0
