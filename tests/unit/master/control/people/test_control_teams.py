"""Teams live: who belongs to which, to which a job is counted, and what quotas and limits do to
what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.errors import (
    AlreadyExists,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    QuotaExceeded,
    Unsatisfiable,
)
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import GpuTypeConfig, QueueConfig
from dlq_master.control.loop.turn import Turn
from dlq_master.control.people.teams import moved
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    DeleteTeam,
    SetPolicy,
    SetTeam,
    TeamSet,
    UpdateJob,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.reward import strict
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from dlq_master.policy.order.share import ShareRules
from dlq_master.store.tables.tenants import Member, Team, TeamRules
from support.counted_calls import counted_calls
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from support.validate import validate

Masters = Callable[..., Master]
ALICE = Caller("alice", "user")


def set_team(master: Master, name: str = "vision", **told: Any) -> TeamSet:
    members = told.pop("members", (Member("alice"),))
    slo, version, force = (
        told.pop("slo_quota", None),
        told.pop("version", 0),
        told.pop("force", False),
    )
    team = Team(name, 0.0, TeamRules(**told), slo, tuple(members), version)
    answer = master.ask(SetTeam(caller=ROOT, request_id="", team=team, force=force))
    assert isinstance(answer, TeamSet)
    return answer


def a_master(masters: Masters, policy: str = "dlq", gpus: int = 8) -> Master:
    master = masters(config_of(policy))
    SimAgent(master, NodeId("n1"), gpus=gpus).hello()
    return master


def shares(master: Master) -> ShareRules | None:
    return master.state.policy.shares


def test_a_job_is_counted_to_the_team_it_names_to_the_default_or_to_the_first(
    masters: Masters,
) -> None:
    master = a_master(masters)
    assert master.submit(1).team == ""
    set_team(master, "vision")
    master.tick(10.0)
    set_team(master, "nlp")
    assert [master.submit(1).team, master.submit(1, team="nlp").team] == ["vision", "nlp"]
    set_team(master, "nlp", members=[Member("alice", default=True)])
    assert master.submit(1).team == "nlp"
    master.restart()
    assert master.submit(1).team == "nlp"
    assert {job.team for job in master.loop.published.jobs()} == {"", "vision", "nlp"}


def test_a_user_has_one_default_team(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", members=[Member("alice", default=True)])
    set_team(master, "nlp", members=[Member("alice", default=True)])
    teams = {team.name: team for team in master.loop.published.teams()}
    assert [teams[name].members[0].default for name in ("vision", "nlp")] == [False, True]
    assert teams["vision"].version == 2


def test_a_team_of_others_or_of_nobody_is_refused_by_name(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", members=[Member("bob")])
    set_team(master, "speech")
    told = []
    for name in ("vision", "absent"):
        with pytest.raises(InvalidRequest) as refused:
            master.submit(1, team=name)
        assert refused.value.field == "spec.team"
        told.append(str(refused.value).replace(name, "X"))
    assert told[0] == told[1], "nobody learns which teams others have"
    with pytest.raises(InvalidRequest, match=r"in no team 'speach'.*speech"):
        master.submit(1, team="speach")


def test_a_quota_below_what_runs_stops_nobody_and_says_who_borrows(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    for _ in range(2):
        master.submit(4)
    assert [job.band for job in master.loop.published.jobs()] == [Band.SPOT, Band.SPOT]
    (notice,) = set_team(master, gpu_quota=4).notices
    assert "holds 8 GPUs (jobs 1, 2), 4 beyond its quota" in notice
    jobs = list(master.loop.published.jobs())
    assert sorted(job.band for job in jobs) == [Band.SPOT, Band.BORROW]
    assert all(job.live_attempt for job in jobs)
    uses = master.loop.published.team_uses(master.clock.now_s())
    assert (uses["vision"].gpus, uses["vision"].borrowed_gpus) == (8, 4)
    master.restart()
    assert sorted(job.band for job in master.loop.published.jobs()) == [Band.SPOT, Band.BORROW]
    set_team(master, gpu_quota=None)
    assert {job.band for job in master.loop.published.jobs()} == {Band.SPOT}
    validate(master.state.cluster)


def test_a_limit_below_what_runs_lets_nobody_follow(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    master.submit(4)
    (notice,) = set_team(master, gpu_limit=2).notices
    assert "nobody is stopped" in notice
    late = master.submit(1)
    assert master.job(late.job_id).waiting
    assert master.why(late.job_id).reasons[0].code is ReasonCode.TEAM_LIMIT
    assert master.why(late.job_id).reasons[0].blocking_jobs == (1,)
    assert master.job(JobId(1)).live_attempt


def test_a_limit_below_what_a_waiting_job_needs_names_the_job(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    master.submit(8)
    wide, narrow = master.submit(6), master.submit(2)
    _, notice = set_team(master, gpu_limit=2).notices
    assert notice.startswith(f"jobs {wide.job_id} of team vision wait and are wider")
    assert master.job(narrow.job_id).waiting
    assert len(set_team(master, gpu_limit=6).notices) == 1


def test_a_job_that_is_wider_than_its_team_may_ever_hold_is_refused(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, members=[Member("alice", TeamRules(gpu_limit=2))], gpu_limit=4)
    with pytest.raises(Unsatisfiable, match="alice in team vision may hold 2"):
        master.submit(4)


@pytest.mark.parametrize(("unit", "taken"), [("gpus", False), ("normalised", True)])
def test_a_width_counts_in_the_unit_of_quotas(masters: Masters, unit: str, taken: bool) -> None:
    """Four GPUs of speed 0.25, by the word that their type begins with."""
    config = replace(
        config_of("dlq", quota_unit=unit), gpu_types={"h100": GpuTypeConfig(speed=0.25)}
    )
    master = masters(config)
    SimAgent(master, NodeId("n1"), gpus=8, gpu_type="h100-80gb").hello()
    set_team(master, gpu_limit=1)
    ask = replace(master.submission(4), request=Request(gpus=4, gpu_type="h100"))
    if not taken:
        with pytest.raises(Unsatisfiable, match="the job needs 4 GPUs, and team vision may hold 1"):
            master.ask(ask)
        return
    job_id = master.ask(ask).job.job_id
    assert master.job(job_id).live_attempt == 1
    assert master.submit(1, request_id="r2").waiting
    with pytest.raises(Unsatisfiable, match=r"the job needs 1\.25 GPUs"):
        master.submit(5)
    (notice,) = set_team(master, gpu_quota=0).notices
    assert notice.startswith(f"team vision holds 1 GPUs (jobs {job_id}), 1 beyond its quota")


def test_more_jobs_than_a_team_or_a_member_may_have_are_refused(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, members=[Member("alice", TeamRules(queued_jobs=2))], queued_jobs=3)
    master.submit(1)
    second = master.submit(1)
    with pytest.raises(QuotaExceeded, match="alice in team vision has 2 jobs"):
        master.submit(1)
    master.cancel(second.job_id)
    assert master.submit(1).job_id
    set_team(master, members=[Member("alice"), Member("bob")], queued_jobs=3)
    bob = Caller("bob", "user")
    master.submit(1, caller=bob, run_estimate_s=60.0)
    words = r"team vision has 3 jobs that have not ended \(alice 2, bob 1\); the limit is 3"
    with pytest.raises(QuotaExceeded, match=words) as refused:
        master.submit(1)
    assert "once some have ended" in refused.value.hint


def test_a_full_queue_refuses_and_takes_more_once_jobs_have_ended(masters: Masters) -> None:
    queues = (QueueConfig("default", jobs=2), QueueConfig("short", jobs_per_user=1))
    master = masters(replace(config_of("dlq"), queues=queues))
    SimAgent(master, NodeId("n1"), gpus=8).hello()
    first = master.submit(1)
    master.submit(1)
    master.submit(1, queue="short")
    for queue, words in (("default", "queue default has 2"), ("short", "alice in queue short")):
        with pytest.raises(QuotaExceeded, match=words) as refused:
            master.submit(1, queue=queue)
        assert "may be asked again" in refused.value.hint
        assert "(alice" not in refused.value.what, "they are all alice's"
    master.cancel(first.job_id)
    assert master.submit(1).queue == "default"


def test_more_than_is_promised_is_taken_back_only_by_force(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    job = master.submit(4)
    told = master.job(job.job_id)._replace(steps=strict(1e9), promised=0, verdict="holes")
    master.state.cluster.put_job(told)
    master.tick()
    with pytest.raises(IllegalTransition, match="4 GPUs of team vision are promised to jobs 1"):
        set_team(master, slo_quota=2)
    assert set_team(master, slo_quota=2, force=True).team.slo_quota == 2
    assert master.state.policy.promises is not None
    assert master.state.policy.promises.quotas == {"vision": 2}


def test_a_change_that_somebody_else_has_made_meanwhile_is_not_overwritten(
    masters: Masters,
) -> None:
    master = a_master(masters)
    stored = set_team(master, gpu_quota=4).team
    set_team(master, gpu_quota=6, version=stored.version)
    with pytest.raises(Conflict):
        set_team(master, gpu_quota=5, version=stored.version)


def test_a_team_is_not_named_as_a_user(masters: Masters) -> None:
    with pytest.raises(AlreadyExists, match="alice is a user"):
        set_team(a_master(masters), "alice")


def test_under_a_policy_without_teams_they_count_for_nothing_and_that_is_said(
    masters: Masters,
) -> None:
    master = a_master(masters, "fifo")
    (notice,) = set_team(master, gpu_quota=1).notices
    assert notice.startswith("policy fifo knows no quotas")
    assert master.loop.published.team_notice() == notice
    assert master.state.policy.borrowing is None


def test_under_a_policy_without_teams_no_limit_refuses_anything(masters: Masters) -> None:
    master = a_master(masters, "fifo")
    set_team(master, members=[Member("alice", TeamRules(gpu_limit=1))], gpu_limit=1, queued_jobs=0)
    assert master.submit(4).job_id
    master.ask(SetPolicy(caller=ROOT, request_id="", policy="dlq", settings=()))
    with pytest.raises(Unsatisfiable):
        master.submit(4)


def test_a_job_that_waits_is_counted_to_another_team_by_its_user(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", gpu_limit=2)
    runs = master.submit(2, team="vision")
    waits = master.submit(2, team="vision")
    assert master.job(waits.job_id).band is Band.LIMIT
    set_team(master, "nlp", queued_jobs=1)
    answer = master.edit(UpdateJob, waits.job_id, team="nlp")
    assert [(it.field, it.before, it.after) for it in answer.changes] == [("team", "vision", "nlp")]  # type: ignore[attr-defined]  # an update's
    moved = master.job(waits.job_id)
    assert (moved.team, moved.live_attempt) == ("nlp", 1), "its limit is not in the way there"
    uses = master.loop.published.team_uses(0.0)
    assert [(uses[team].gpus, uses[team].jobs) for team in ("vision", "nlp")] == [(2, 1), (2, 1)]
    validate(master.state.cluster)
    with pytest.raises(IllegalTransition, match="its team cannot be changed any more"):
        master.edit(UpdateJob, runs.job_id, team="nlp")
    third = master.submit(1, team="vision")
    with pytest.raises(QuotaExceeded, match="team nlp has 1 jobs"):
        master.edit(UpdateJob, third.job_id, team="nlp")
    with pytest.raises(InvalidRequest, match="in no team 'absent'"):
        master.edit(UpdateJob, third.job_id, team="absent")


def test_a_reader_of_teams_looks_at_no_job_that_waits(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    master.submit(8, team="vision")
    costs, last = [], master.submit(1, team="vision")
    for waiting in (10, 50):
        while master.state.cluster.waiting.count < waiting:
            last = master.submit(1, team="vision")
        with counted_calls(of_c=True) as calls:
            uses = master.loop.published.team_uses(master.clock.now_s())
        costs.append(calls.total())
        for name in ("vision", "vision/alice"):
            use = uses[name]
            assert (use.running, use.waiting, use.jobs) == (1, waiting, waiting + 1)
    assert costs[0] == costs[1]
    master.edit(CancelJob, last.job_id)
    after = master.loop.published.team_uses(master.clock.now_s())["vision"]
    assert (after.waiting, after.jobs) == (49, 50)
    master.restart()
    after = master.loop.published.team_uses(master.clock.now_s())["vision"]
    assert (after.waiting, after.jobs) == (49, 50), "counted anew from the disk"


def test_what_is_promised_by_the_quota_of_a_team_stays_with_it(masters: Masters) -> None:
    master = a_master(masters)
    job = master.submit(1)
    set_team(master, "nlp")
    cluster = master.state.cluster
    promised = cluster.jobs[job.job_id]._replace(promised=0)
    with pytest.raises(IllegalTransition, match="promised a deadline"):
        moved(
            Turn(master.state, master.store, master.clock.now_s(), WIRING), promised, "nlp", ALICE
        )


def test_jobs_of_a_team_that_is_gone_go_on_without_its_quota(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, gpu_quota=0)
    master.submit(4)
    assert master.job(JobId(1)).band is Band.BORROW
    assert master.ask(DeleteTeam(caller=ROOT, request_id="d1", name="vision")) == 1
    assert master.job(JobId(1)).band is Band.SPOT
    assert master.loop.published.teams() == []
    assert master.ask(DeleteTeam(caller=ROOT, request_id="d1", name="vision")) == 1


def test_what_a_team_has_used_is_known_after_a_restart(masters: Masters) -> None:
    master = masters(config_of("dlq"))
    agent = SimAgent(master, NodeId("n1"), gpus=8)
    agent.hello()
    set_team(master, "vision")
    job = master.submit(4)
    agent.obey()
    for key in list(agent.ranks):
        agent.start(key)
    agent.report()
    master.clock.advance(1000.0)
    agent.hello()
    before = master.loop.published.team_uses(master.clock.now_s())["vision"]
    assert before.usage_gpu_s == pytest.approx(4000.0, rel=0.01)
    assert before.ratio == 1.0
    for key in list(agent.ranks):
        agent.exit(key)
    agent.report()
    assert master.job(job.job_id).ended
    master.restart()
    after = master.loop.published.team_uses(master.clock.now_s())["vision"]
    assert after.usage_gpu_s == pytest.approx(before.usage_gpu_s, rel=0.01)
    set_team(master, "nlp", members=[])
    assert shares(master) == ShareRules(weights={"*": 1.0})


def test_shares_come_with_the_first_team_and_weights_with_what_is_told(masters: Masters) -> None:
    master = a_master(masters)
    assert shares(master) is None
    set_team(master, share=2.0, members=[Member("alice", TeamRules(share=0.5))])
    assert shares(master) == ShareRules(weights={"vision": 2.0, "vision/alice": 0.5})
    validate(master.state.cluster)


def test_usage_outlives_a_policy_that_knows_no_shares(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master)
    ledger = master.state.cluster.shares
    assert ledger is not None
    now_s = master.clock.now_s()
    ledger.ledger.charge("vision/alice", 8, now_s - 1000.0, now_s)
    for number, policy in enumerate(("fifo", "chronus", "dlq")):
        request_id = f"p{number}"
        master.ask(SetPolicy(caller=ROOT, request_id=request_id, policy=policy, force=True))
    uses = master.loop.published.team_uses(now_s)
    assert uses["vision"].usage_gpu_s == pytest.approx(8000.0, rel=0.01)


GIVEN = Caller("alice", "user", given_teams=(("vision", "lab-vision"),))


def test_a_group_gives_a_team_for_as_long_as_it_is_told(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", members=[])
    assert master.submit(1, caller=GIVEN).team == "vision"
    assert master.submit(1, caller=GIVEN, team="vision").team == "vision"
    with pytest.raises(InvalidRequest, match="in no team 'vision'"):
        master.submit(1, team="vision")
    job = master.submit(1, hold=True)
    assert job.team == "", "without the group the same user is in no team"
    master.edit(UpdateJob, job.job_id, caller=GIVEN, team="vision")
    assert master.job(job.job_id).team == "vision"
    master.restart()
    assert master.job(job.job_id).team == "vision", "the team of a job stands in the job"


def test_a_team_that_the_user_has_joined_comes_before_those_of_groups(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", members=[])
    set_team(master, "nlp")
    assert master.submit(1, caller=GIVEN).team == "nlp"
    assert master.submit(1, caller=GIVEN, team="vision").team == "vision"


def test_a_group_of_an_operator_moves_no_job_of_another_user(masters: Masters) -> None:
    master = a_master(masters)
    set_team(master, "vision", members=[])
    job = master.submit(1, hold=True)
    olga = Caller("olga", "operator", given_teams=(("vision", "lab-vision"),))
    with pytest.raises(InvalidRequest, match="alice is in no team"):
        master.edit(UpdateJob, job.job_id, caller=olga, team="vision")


@pytest.mark.parametrize("team", ["", "vision"])
def test_a_team_of_a_group_that_does_not_exist_is_refused_in_words(
    masters: Masters, team: str
) -> None:
    """Without the refusal such a job would count to no team, and have no limit."""
    master = a_master(masters)
    with pytest.raises(InvalidRequest, match=r"'lab-vision'.*'vision'.*no such team") as refused:
        master.submit(1, caller=GIVEN, team=team)
    assert "dlq admin team set vision" in refused.value.hint
    set_team(master, "nlp")
    assert master.submit(1, caller=GIVEN, team="nlp").team == "nlp", "another one goes on"
