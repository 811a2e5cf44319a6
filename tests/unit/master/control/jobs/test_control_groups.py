"""Groups in the master: accepted whole, started at one instant, and ended together."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import AlreadyExists, InvalidRequest, QuotaExceeded, Unsatisfiable
from dlq_master.control.config import InteractiveConfig, JobsConfig, QueueConfig
from dlq_master.control.stimuli import (
    AskedArray,
    AskedDeadline,
    AskedDependency,
    AskedMember,
    AskedTerm,
    CancelJob,
    PauseJob,
    RequeueJob,
    ResumeJob,
    SubmitGroup,
    UpdateJob,
)
from dlq_master.control.stimuli.jobs import SubmittedGroup
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import MemberEnds, Relation
from dlq_master.model.jobs.job import EndReason, RunRules
from dlq_master.model.why import ReasonCode
from dlq_master.policy.place.allocation.together import with_turns
from support.master_harness import ALICE, Master, config_of
from support.running import running
from support.sim_agent import SimAgent, greet_again

TIMEOUT_S = 60.0


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    jobs = JobsConfig(retry_backoff=Seconds(0.0), barrier_timeout=Seconds(TIMEOUT_S))
    return masters(replace(config_of(), jobs=jobs))


def asked(
    master: Master,
    *members: tuple[str, int, MemberEnds],
    request_id: str = "g",
    digest: str = "d",
    **more: Any,
) -> SubmitGroup:
    """A group with so many GPUs for each member."""
    return SubmitGroup(
        caller=ALICE,
        request_id=request_id,
        digest=digest,
        members=tuple(
            AskedMember(name, 1, ends, master.submission(gpus, request_id="", name=name, **more))
            for name, gpus, ends in members
        ),
    )


LEARNER, ACTOR = ("learner", 4, MemberEnds.ALL), ("actor", 4, MemberEnds.EACH)


def submitted(master: Master, *members: tuple[str, int, MemberEnds], **more: Any) -> list[JobId]:
    found: SubmittedGroup = master.ask(asked(master, *(members or (LEARNER, ACTOR)), **more))
    return [job.job_id for job in found.jobs]


def key_of(master: Master, job_id: JobId) -> AttemptKey:
    return master.attempt(job_id).key


def agent_of(master: Master, job_id: JobId, *agents: SimAgent) -> SimAgent:
    (status,) = master.attempt(job_id).ranks
    return next(agent for agent in agents if agent.node_id == status.node_id)


def placed(master: Master, *agents: SimAgent) -> tuple[list[JobId], list[SimAgent]]:
    """A group whose launches have come to the nodes, and the agent of each member."""
    jobs = submitted(master)
    theirs = [agent_of(master, job_id, *agents) for job_id in jobs]
    for each in theirs:
        each.obey()
    return jobs, theirs


def started(master: Master, *agents: SimAgent, **more: Any) -> list[JobId]:
    """A group whose members run on two nodes."""
    jobs = submitted(master, **more)
    for number, job_id in enumerate(jobs):
        agent = agent_of(master, job_id, *agents)
        agent.obey()
        agent.ready(key_of(master, job_id), 20_001 + 10 * number)
    spread_word(*agents)
    assert states(master, *jobs) == ["running"] * len(jobs)
    return jobs


def spread_word(*agents: SimAgent) -> None:
    for _ in range(2):
        for agent in agents:
            agent.report()
            agent.obey()
    for agent in agents:
        agent.report()


def states(master: Master, *job_ids: JobId) -> list[str]:
    return [
        job.state.value if job.live_attempt is None else master.attempt(job.job_id).state.value
        for job in map(master.job, job_ids)
    ]


# --- accepting ------------------------------------------------------------------------------------


def test_one_submission_makes_a_job_for_each_member_and_a_repeat_makes_none(
    master: Master,
) -> None:
    first, second = submitted(master), submitted(master)
    assert first == second == [2, 3]
    assert [master.job(it).spec_id for it in first] == first, "each has its own spec"
    group = master.job(first[0]).group
    assert group is not None
    assert [(it.name, it.ends) for it in group.members] == [
        ("learner", MemberEnds.ALL),
        ("actor", MemberEnds.EACH),
    ]
    with pytest.raises(AlreadyExists):
        submitted(master, digest="another")
    master.restart()
    assert submitted(master) == first
    assert master.job(first[1]).group == group


def test_a_member_may_have_several_jobs(master: Master) -> None:
    ask = asked(master, LEARNER, ACTOR)
    many = replace(ask, members=(ask.members[0], ask.members[1]._replace(jobs=3)))
    found: SubmittedGroup = master.ask(many)
    assert [job.job_id for job in found.jobs] == [2, 3, 4, 5]
    group = found.jobs[3].group
    assert group is not None
    assert group.member(found.jobs[3].array_index) == (group.members[1], 2)


@pytest.mark.parametrize(
    ("member", "more", "words", "field"),
    [
        (("actor", 4, MemberEnds.EACH), {"nice": 900}, "member 'learner'", "members.learner.nice"),
        (
            ("actor", 4, MemberEnds.EACH),
            {"array": AskedArray((0, 1), 0, 1)},
            "is no array",
            "members.learner.array",
        ),
        (
            ("actor", 4, MemberEnds.EACH),
            {"deadlines": (AskedDeadline(1.0, after_s=3600.0),)},
            "has no deadline.*\\nleave it out",
            "members.learner.deadlines",
        ),
        (
            ("learner", 4, MemberEnds.EACH),
            {},
            "two members are called 'learner'",
            "members.learner",
        ),
    ],
)
def test_a_refusal_names_the_member_and_the_field_and_accepts_nothing(
    master: Master,
    member: tuple[str, int, MemberEnds],
    more: dict[str, object],
    words: str,
    field: str,
) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        submitted(master, LEARNER, member, **more)
    assert refused.value.metadata["field"] == field
    assert not master.state.cluster.jobs


def test_what_no_nodes_could_ever_hold_is_refused_as_a_whole(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    with pytest.raises(Unsatisfiable, match="member 'huge'"):
        submitted(master, LEARNER, ("huge", 64, MemberEnds.EACH))
    with pytest.raises(Unsatisfiable, match="need 12 GPUs at one time, and there are 8"):
        submitted(master, LEARNER, ACTOR, ("more", 4, MemberEnds.EACH))
    with pytest.raises(Unsatisfiable, match="cannot hold all members at one time"):
        submitted(
            master, ("a", 3, MemberEnds.EACH), ("b", 3, MemberEnds.EACH), ("c", 2, MemberEnds.EACH)
        )
    assert not master.state.cluster.jobs


def test_limits_count_the_whole_group(masters: Callable[..., Master]) -> None:
    master = masters(replace(config_of(), jobs=JobsConfig(queued_per_user=2)))
    submitted(master)
    with pytest.raises(QuotaExceeded, match="member 'learner'"):
        submitted(master, request_id="again")
    assert len(master.state.cluster.jobs) == 2


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"deadlines": (AskedDeadline(1.0, after_s=3600.0),)}, "has no deadline"),
        ({"sizes": (4, 8)}, "is not elastic"),
    ],
)
def test_a_change_gives_no_member_a_promise_or_sizes(
    master: Master, wish: dict[str, Any], words: str
) -> None:
    learner, _ = submitted(master)
    with pytest.raises(InvalidRequest, match=f"a member of a group {words}") as refused:
        master.edit(UpdateJob, learner, **wish)
    assert "a job of its own" in refused.value.hint
    assert not master.job(learner).steps
    assert not master.job(learner).request.sizes


def test_the_gpus_of_all_members_count_in_the_queue_of_interactive_jobs(
    masters: Callable[..., Master],
) -> None:
    queues = (QueueConfig("default"), QueueConfig("desk"))
    desk = InteractiveConfig(queue="desk", gpus_per_job=4, gpus_per_user=6)
    master = masters(replace(config_of(), queues=queues, interactive=desk))
    with pytest.raises(QuotaExceeded, match=r"member 'actor'.*may have 6 GPUs"):
        submitted(master, LEARNER, ("actor", 3, MemberEnds.EACH), queue="desk")
    assert not master.state.cluster.jobs
    submitted(master, ("a", 1, MemberEnds.EACH), ("b", 1, MemberEnds.EACH), LEARNER, queue="desk")


# --- starting -------------------------------------------------------------------------------------


def test_no_member_starts_before_all_are_ready_and_each_hears_where_all_are(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    (learner, actor), (first, second) = placed(master, agent, other)
    assert first.ranks[key_of(master, learner)].launch.at_barrier
    first.ready(key_of(master, learner), 20_001)
    spread_word(first)
    assert (first.living(), states(master, learner)) == ([], ["preparing"])

    second.ready(key_of(master, actor), 20_011)
    spread_word(first, second)
    assert states(master, learner, actor) == ["running", "running"]
    launch = first.ranks[key_of(master, learner)].launch
    hosts = [str(it.node_id) for it in (first, second)]
    found = {name: [at.rpartition(":")[2] for at in places] for name, places in launch.peers}
    assert found == {"learner": ["20001"], "actor": ["20011"]}
    assert second.ranks[key_of(master, actor)].launch.peers == launch.peers
    assert len(set(hosts)) == 2


def test_nothing_starts_while_one_member_has_no_room_and_why_names_it(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    busy = master.submit(2)
    agent_of(master, busy.job_id, agent, other).obey()
    learner, actor = submitted(master)
    single = master.submit(4)
    assert master.job(single.job_id).live_attempt == 1, "no GPU is kept for the group"
    assert states(master, learner, actor) == ["queued", "queued"]
    reasons = master.why(learner).reasons
    assert {it.code for it in reasons} >= {ReasonCode.GROUP}
    told = next(it for it in reasons if it.code is ReasonCode.GROUP)
    assert told.blocking_jobs == (actor,)
    assert "member actor cannot start" in told.detail


def test_many_groups_that_find_no_room_starve_none_behind_them(
    masters: Callable[..., Master],
) -> None:
    master = masters(config_of("dlq"))
    agents = [SimAgent(master, NodeId(f"n{number}")) for number in range(2)]
    for agent in agents:
        agent.hello()
    running(master, agents[0])
    for number in range(12):
        submitted(master, request_id=f"wide {number}")
    narrow = ("a", 1, MemberEnds.EACH), ("b", 1, MemberEnds.EACH)
    jobs = submitted(master, *narrow, request_id="narrow", nice=50)
    for _ in range(60):
        for agent in agents:
            agent.obey()
            agent.heartbeat()
        master.tick(7.0)
    assert [master.job(it).live_attempt for it in jobs] == [1, 1]


def test_each_of_many_groups_has_its_turn_and_the_first_are_always_looked_at() -> None:
    groups = [JobId(number) for number in range(20)]
    looks = [with_turns(groups, 300.0 * number)[:7] for number in range(100)]
    assert all(look[:4] == groups[:4] for look in looks)
    assert {job_id for look in looks for job_id in look} == {*groups}
    assert with_turns(groups[:7], 7.0) == groups[:7]
    assert sorted(with_turns(groups, 7.0)) == groups


def test_a_member_that_cannot_be_started_takes_the_others_off_their_gpus(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    (learner, actor), (first, second) = placed(master, agent, other)
    first.ready(key_of(master, learner), 20_001)
    first.report()
    second.fail_start(key_of(master, actor), "the image cannot be pulled")
    second.report()
    spread_word(first)
    assert master.ended(learner, 1).state.value == "preempted"
    assert master.ended(actor, 1).state.value == "start_failed"
    assert first.living() == []
    assert master.attempt(learner).key.number == master.attempt(actor).key.number == 2


def test_the_timeout_of_the_barrier_is_that_of_the_group(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    (learner, actor), (first, second) = placed(master, agent, other)
    first.ready(key_of(master, learner), 20_001)
    for _ in range(round(TIMEOUT_S / 5.0) + 1):
        master.clock.advance(5.0)
        for each in (first, second):
            each.heartbeat()
            each.obey()
            each.report()
        master.tick()
    for _ in range(2):
        spread_word(first, second)
    assert master.ended(actor, 1).ranks[0].start_error
    assert master.ended(learner, 1).end_reason is EndReason.PREEMPTED


def test_a_master_that_restarts_between_two_starts_has_a_whole_group(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = submitted(master)
    agent_of(master, learner, agent, other).obey()
    master.restart()
    greet_again(master, (agent, other))
    for number, job_id in enumerate((learner, actor)):
        each = agent_of(master, job_id, agent, other)
        each.obey()
        each.ready(key_of(master, job_id), 20_001 + number)
    spread_word(agent, other)
    assert states(master, learner, actor) == ["running", "running"]
    assert [master.job(it).attempts for it in (learner, actor)] == [1, 1]


# --- ending ---------------------------------------------------------------------------------------


def test_the_end_of_a_member_that_ends_all_ends_the_group_well(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    agent_of(master, learner, agent, other).exit(key_of(master, learner))
    spread_word(agent, other)
    assert states(master, learner) == ["completed"]
    assert master.job(actor).state.value == "cancelled"
    stop = agent_of(master, actor, agent, other)
    assert stop.ranks[key_of(master, actor)].noticed, "with its grace, and not at once"
    assert not stop.ranks[key_of(master, actor)].kill
    told = [it.cause for it in master.events(actor) if it.kind == "job_cancelled"]
    assert told == ["member learner has completed, and with it the group"]


@pytest.mark.parametrize(("code", "met"), [(0, {"afterok"}), (1, {"afternotok"})])
def test_jobs_that_depend_on_a_group_hear_how_the_group_has_ended(
    master: Master, agent: SimAgent, other: SimAgent, code: int, met: set[str]
) -> None:
    learner, actor = started(master, agent, other)
    group = JobId(learner - 1)
    later = {
        relation.value: master.submit(
            1, depends=AskedDependency((AskedTerm(relation, group),), False, False)
        ).job_id
        for relation in (Relation.AFTEROK, Relation.AFTERNOTOK)
    }
    agent_of(master, learner, agent, other).exit(key_of(master, learner), code)
    spread_word(agent, other)
    agent_of(master, actor, agent, other).exit(key_of(master, actor), 143, "killed")
    spread_word(agent, other)
    assert states(master, actor) == ["cancelled"]
    assert {name for name, job_id in later.items() if master.job(job_id).blocked is None} == met


def test_a_member_that_fails_ends_the_group(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    agent_of(master, actor, agent, other).exit(key_of(master, actor), 1)
    spread_word(agent, other)
    assert states(master, actor) == ["failed"]
    assert master.job(learner).state.value == "cancelled"


@pytest.mark.parametrize("code", [0, 1])
def test_a_member_may_end_alone(
    master: Master, agent: SimAgent, other: SimAgent, code: int
) -> None:
    jobs = submitted(master, LEARNER, ("evaluator", 4, MemberEnds.ALONE))
    for each in (agent, other):
        each.obey()
    for job_id in jobs:
        agent_of(master, job_id, agent, other).ready(key_of(master, job_id), 20_001)
    spread_word(agent, other)
    learner, evaluator = jobs
    agent_of(master, evaluator, agent, other).exit(key_of(master, evaluator), code)
    spread_word(agent, other)
    assert states(master, learner) == ["running"]
    assert master.job(evaluator).ended


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_a_member_that_ends_alone_at_the_barrier_keeps_nobody_waiting(
    master: Master, agent: SimAgent, other: SimAgent, how: str
) -> None:
    learner, evaluator = submitted(master, LEARNER, ("evaluator", 4, MemberEnds.ALONE))
    for each in (agent, other):
        each.obey()
    first, second = (agent_of(master, it, agent, other) for it in (learner, evaluator))
    first.ready(key_of(master, learner), 20_001)
    first.report()
    if how == "fails":
        second.start(key_of(master, evaluator))  # as an agent tells of a directory that is missing
        second.exit(key_of(master, evaluator), 127)
    else:
        master.ask(CancelJob(caller=ALICE, request_id="c", job_id=evaluator))
    spread_word(second)
    assert master.job(evaluator).ended
    master.tick()
    spread_word(first)
    assert states(master, learner) == ["running"]


def test_a_member_that_completes_leaves_the_others_running(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    agent_of(master, actor, agent, other).exit(key_of(master, actor))
    spread_word(agent, other)
    assert states(master, learner, actor) == ["running", "completed"]


def test_a_cancel_of_a_member_cancels_the_group(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    master.cancel(actor)
    assert [master.job(it).state.value for it in (learner, actor)] == ["cancelled"] * 2


# --- stopping, and going on -----------------------------------------------------------------------


@pytest.mark.parametrize("edit", [PauseJob, RequeueJob])
def test_a_pause_or_a_requeue_of_a_member_is_that_of_the_group(
    master: Master, agent: SimAgent, other: SimAgent, edit: type
) -> None:
    learner, actor = started(master, agent, other)
    master.edit(edit, actor, accept_loss=True)
    spread_word(agent, other)
    assert states(master, learner, actor) == ["pausing", "pausing"]
    for job_id in (learner, actor):
        agent_of(master, job_id, agent, other).exit(key_of(master, job_id), 99)
    spread_word(agent, other)
    if edit is PauseJob:
        assert states(master, learner, actor) == ["queued", "held"]
        master.edit(ResumeJob, actor)
    assert [master.job(it).live_attempt for it in (learner, actor)] == [2, 2]


def test_a_group_that_lost_a_node_starts_again_as_a_whole(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    lost = agent_of(master, actor, agent, other)
    kept = agent_of(master, learner, agent, other)
    lost.reboot()
    lost.hello()
    spread_word(kept)
    assert master.ended(actor, 1).state.value == "node_lost"
    assert states(master, learner) == ["pausing"]
    assert states(master, actor) == ["queued"], "it waits for the others"
    kept.exit(key_of(master, learner), 99)
    spread_word(kept)
    assert [master.job(it).live_attempt for it in (learner, actor)] == [2, 2]


def test_while_a_node_is_silent_the_others_go_on(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    agent_of(master, actor, agent, other).cut()
    for _ in range(10):
        master.clock.advance(5.0)
        agent_of(master, learner, agent, other).heartbeat()
        master.tick()
    assert states(master, learner, actor) == ["running", "unknown"]


def test_a_restart_finds_what_has_to_follow(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other)
    master.state.jobs.stirred_groups.clear()
    master.restart()
    assert [*master.state.jobs.stirred_groups] == [1]
    greet_again(master, (agent, other))
    assert states(master, learner, actor) == ["running", "running"]


def test_a_failure_with_a_restart_left_starts_the_group_again(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    learner, actor = started(master, agent, other, rules=RunRules(max_restarts=1))
    agent_of(master, actor, agent, other).exit(key_of(master, actor), 1)
    spread_word(agent, other)
    assert states(master, learner, actor) == ["pausing", "queued"]


def test_a_cancel_before_the_start_ends_the_group(master: Master) -> None:
    learner, actor = submitted(master)
    master.ask(CancelJob(caller=ALICE, request_id="c", job_id=learner))
    assert states(master, learner, actor) == ["cancelled", "cancelled"]
