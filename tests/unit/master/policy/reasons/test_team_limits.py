"""Limits of teams, and quotas and limits of their members."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.adopt import adopt
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.registry import build
from support.builders import World, a_job
from support.validate import validate


def a_world(nodes: int = 2, **settings: str) -> World:
    return World("dlq", nodes, None, place="consolidate", **settings)


def of(user: str, job_id: int, gpus: int, run_s: float = 1000.0, team: str = "vision") -> Job:
    return a_job(job_id, gpus, user=user, team=team, duration_estimate_s=run_s)


def reasons(world: World, job_id: int) -> tuple[Reason, ...]:
    view = View(world.cluster, world.now_s)
    found = explain(view, world.policy, JobId(job_id))
    assert ReasonSummary(view, world.policy).code(world.job(job_id)) is (
        found[0].code if found else None
    )
    return found


def test_a_team_holds_no_more_than_its_limit_though_gpus_are_free() -> None:
    world = a_world(team_limit="vision:8").submit(*[of("ann", n, 4, 100.0 * n) for n in (1, 2, 3)])
    world.decide()
    assert (world.running, world.job(3).band) == ([1, 2], Band.LIMIT)
    (reason,) = reasons(world, 3)
    assert (reason.code, reason.need, reason.have) == (ReasonCode.TEAM_LIMIT, 8, 8)
    assert (reason.blocking_jobs, reason.detail) == ((1, 2), "team vision")
    world.finish(1).at(100.0)
    assert (world.running, world.job(3).band) == ([2, 3], Band.SPOT)
    validate(world.cluster)


def test_up_to_its_limit_a_team_borrows() -> None:
    world = a_world(team_quota="vision:4", team_limit="vision:8")
    world.submit(*[of("ann", n, 4, 100.0 * n) for n in (1, 2, 3)]).decide()
    assert [world.job(n).band for n in (1, 2, 3)] == [Band.SPOT, Band.BORROW, Band.LIMIT]
    assert world.running == [1, 2]


def test_nobody_is_stopped_for_a_limit_below_what_runs() -> None:
    world = a_world().submit(*[of("ann", n, 4) for n in (1, 2, 3)]).decide()
    lower = build("dlq", {"team_limit": "vision:4", "place": "consolidate"})
    world.cluster, world.policy = adopt(world.cluster, world.policy.ordering, lower).cluster, lower
    world.submit(of("ann", 4, 1)).decide().at(280.0).at(320.0)
    assert world.running == [1, 2, 3]
    assert world.job(4).band is Band.LIMIT


def a_full_team(**settings: str) -> World:
    """It holds all that it may, on half of the cluster, and a shorter job of it has come."""
    world = a_world(2, team_limit="vision:8", **settings)
    world.submit(of("ann", 1, 4, 9000.0), of("bob", 2, 4, 5000.0)).decide()
    world.submit(of("ann", 3, 4, 100.0)).decide()
    assert (world.running, world.job(3).band) == ([1, 2], Band.LIMIT)
    return world


def test_a_better_job_of_a_team_at_its_limit_gets_the_place_of_its_last() -> None:
    world = a_full_team()
    world.at(300.0)
    assert (world.running, world.leaving) == ([2], [1])
    assert world.job(3).band is Band.LIMIT, "what job 1 still holds is its team's"
    taken = world.job(1).taken
    assert taken is not None
    assert (taken.by, taken.rule) == (
        3,
        "its own team may hold no more, and a better job of it waits",
    )
    world.leave(1).at(310.0)
    assert (world.running, world.job(3).band, world.job(1).band) == ([2, 3], Band.SPOT, Band.LIMIT)
    assert world.job(1).displaced == 1
    world.at(600.0).at(900.0)
    assert world.running == [2, 3]
    validate(world.cluster)


def test_nobody_of_a_team_leaves_for_a_lesser_one_nor_whom_a_guard_protects() -> None:
    world = a_world(team_limit="vision:8").submit(of("ann", 1, 8, 100.0)).decide()
    world.submit(of("bob", 2, 8, 9000.0)).decide().at(300.0).at(600.0)
    assert (world.running, world.leaving) == ([1], [])
    world = a_full_team(min_run="1000").at(300.0).at(600.0)
    assert (world.running, world.leaving) == ([1, 2], [])


def test_as_few_leave_as_make_room_for_it_and_none_where_it_would_find_no_gpus() -> None:
    world = a_world(team_limit="vision:8")
    world.submit(*[of("ann", n, gpus, 9000.0 - n) for n, gpus in ((1, 1), (2, 4), (3, 3))]).decide()
    world.submit(of("ann", 4, 4, 100.0)).decide().at(300.0)
    assert world.leaving == [2], "job 1 is the last, and makes no room"
    world = a_world(1, team_limit="vision:4").submit(of("ann", 1, 2, 9000.0)).decide()
    world.submit(of("eve", 2, 6, 1.0, "nlp"), of("ann", 3, 4, 100.0)).decide().at(300.0)
    assert (world.running, world.leaving) == ([1, 2], [])


def test_a_member_at_a_limit_of_its_own_takes_the_place_of_nobody_else() -> None:
    world = a_world(team_limit="vision:12,vision/ann:4")
    world.submit(of("ann", 1, 4, 5000.0), of("bob", 2, 4, 9000.0)).decide()
    world.submit(of("ann", 3, 4, 100.0)).decide().at(300.0)
    assert world.leaving == [1]


def test_a_team_that_runs_as_many_jobs_as_it_may_changes_one_for_a_better() -> None:
    world = a_world(team_jobs="vision:2")
    world.submit(of("ann", 1, 1, 9000.0), of("ann", 2, 1, 5000.0)).decide()
    world.submit(of("ann", 3, 8, 100.0)).decide().at(300.0)
    assert world.leaving == [1]


def test_who_is_wider_than_a_limit_that_came_later_is_told_that_waiting_does_not_help() -> None:
    world = a_world(team_limit="vision:4").submit(of("ann", 1, 2), of("ann", 2, 6)).decide()
    assert (world.running, world.job(2).band) == ([1], Band.LIMIT)
    reason = reasons(world, 2)[0]
    assert (reason.resource, reason.need, reason.have, reason.blocking_jobs) == ("width", 4, 6, ())
    assert sentence(reason, world.job(2)).endswith(
        "team vision may hold 4 at most: it cannot start before that is raised"
    )


def test_a_member_may_have_a_part_of_what_the_team_has() -> None:
    world = a_world(team_quota="vision:16,vision/ann:4", team_limit="vision/bob:8")
    ann, bob = [of("ann", n, 4) for n in (1, 2)], [of("bob", n, 4) for n in (3, 4, 5)]
    world.submit(*ann, *bob).decide()
    assert [world.job(n).band for n in (1, 2, 3, 4, 5)] == [
        Band.SPOT,
        Band.BORROW,
        Band.SPOT,
        Band.SPOT,
        Band.LIMIT,
    ]
    assert reasons(world, 5)[0].detail == "bob in team vision"
    assert world.running == [1, 2, 3, 4]


def test_a_team_runs_no_more_jobs_at_a_time_than_it_may() -> None:
    world = a_world(team_jobs="vision:2,vision/ann:1")
    world.submit(of("ann", 1, 1), of("ann", 2, 1, 500.0), of("bob", 3, 1), of("bob", 4, 1)).decide()
    assert len(world.running) == 2
    assert 2 in world.running, "the shortest of ann's"
    codes = [(it.code, it.resource, it.need) for it in reasons(world, 1)]
    assert codes == [
        (ReasonCode.TEAM_LIMIT, "jobs", 2),
        (ReasonCode.TEAM_LIMIT, "jobs", 1),
    ]


def test_who_is_kept_back_by_others_of_its_team_that_wait_too_is_told_so() -> None:
    world = a_world(1, team_limit="vision:8").submit(of("eve", 1, 6, 1.0, "nlp")).decide()
    world.submit(of("ann", 2, 8, 100.0), of("ann", 3, 2, 5000.0)).decide()
    assert world.job(3).band is Band.LIMIT, (
        "2 GPUs are free, and job 2 wants all that the team may have"
    )
    reason = reasons(world, 3)[0]
    assert (reason.code, reason.resource) == (ReasonCode.TEAM_LIMIT, "rest")
    told = sentence(reason, world.job(3))
    assert told == "others of team vision rank before it and take what it may still have"


def test_the_same_user_is_counted_to_the_team_that_the_job_names() -> None:
    world = a_world(1, team_limit="vision:4")
    world.submit(of("ann", 1, 4), of("ann", 2, 4), of("ann", 3, 4, team="nlp")).decide()
    assert world.running == [1, 3]


@pytest.mark.parametrize("setting", ["team_quota", "team_limit", "team_jobs"])
def test_presets_of_papers_know_no_teams_unless_they_promise(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        build("srtf", {setting: "a:1"})
    assert build("chronus-paper").by_team is False
    assert build("chronus-paper", {setting: "a:1"}).ordering.by_team


JOBS = st.tuples(
    st.sampled_from(["ann", "bob"]), st.sampled_from(["vision", "nlp"]), st.integers(1, 6)
)


@given(st.lists(st.tuples(JOBS, st.integers(0, 9), st.booleans()), min_size=4, max_size=14))
def test_no_plan_lets_a_team_or_a_member_have_more_than_it_may(
    story: list[tuple[tuple[str, str, int], int, bool]],
) -> None:
    world = a_world(
        3, team_quota="vision:6", team_limit="vision:10,nlp/bob:4", team_jobs="nlp:3,*:9"
    )
    for number, ((user, team, gpus), pick, ends) in enumerate(story, 1):
        world.submit(of(user, number, gpus, 100.0 * (pick + 1), team)).decide()
        running = world.running
        if ends and running:
            world.finish(running[pick % len(running)])
        world.at(world.now_s + 100.0 * pick)
        jobs = [world.job(job_id) for job_id in (*world.running, *world.leaving)]
        held = Counter({"vision": 0})
        for job in jobs:
            held.update({job.team: job.request.gpus, f"{job.team}/{job.user}": job.request.gpus})
        assert held["vision"] <= 10
        assert held["nlp/bob"] <= 4
        assert sum(job.team == "nlp" for job in jobs) <= 3
        for job in world.cluster.jobs.values():
            if job.waiting and job.band is Band.LIMIT:
                assert reasons(world, job.job_id)[0].code is ReasonCode.TEAM_LIMIT
        world.leave(*[job_id for job_id in world.leaving if (job_id + pick) % 3])
    validate(world.cluster)
