"""How long jobs have waited for what: counted, over starts, holds and restarts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_master.control.jobs.waits import AT_ONCE, WRITTEN_EVERY_S, Waits, settled
from dlq_master.control.stimuli import PauseJob, ReleaseJob, SetTeam
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.store.tables.tenants import Member, Spent, Team, TeamRules, Waited
from support.builders import World, a_job, a_waiting_job
from support.master_harness import ALICE, ROOT, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]


class Counted(dict[JobId, Job]):
    """Remembers who was looked at."""

    def __init__(self, jobs: dict[JobId, Job]) -> None:
        super().__init__(jobs)
        self.read: list[JobId] = []

    def __getitem__(self, job_id: JobId) -> Job:
        self.read.append(job_id)
        return super().__getitem__(job_id)


def spent(master: Master, job_id: int) -> dict[str, tuple[float, float]]:
    waited = master.why(JobId(job_id)).waited
    assert waited is not None
    return {one.code: (round(one.held_s), round(one.main_s)) for one in waited.spent}


def seconds(master: Master, count: int) -> None:
    for _ in range(count):
        master.tick(1.0)


@pytest.fixture
def busy(master: Master) -> Master:
    """Job 1 holds four GPUs, and job 2 waits for them."""
    SimAgent(master, NodeId("gpu01")).hello()
    master.submit(4)
    master.submit(4)
    return master


def test_every_second_counts_for_what_held_in_it(busy: Master) -> None:
    seconds(busy, 10)
    assert spent(busy, 2) == {"resources": (10, 10)}
    busy.hold(JobId(2))
    seconds(busy, 5)
    found = spent(busy, 2)
    assert (found["resources"], found["held_user"]) == ((11, 11), (4, 4)), "a look a second"


def test_the_main_reasons_add_up_to_the_whole_wait_and_others_overlap() -> None:
    row = Waited(JobId(1), (Spent("quota", 5.0, 5.0),), 100.0, ("quota", "resources"))
    later = settled(row, 130.0)
    assert later.spent == (Spent("quota", 35.0, 35.0), Spent("resources", 30.0, 0.0))
    assert settled(later, 120.0) == later, "time does not go back"


def test_a_wait_ends_with_its_start_and_another_begins_with_its_requeue(busy: Master) -> None:
    seconds(busy, 10)
    agent = SimAgent(busy, NodeId("gpu01"))
    agent.hello()
    busy.cancel(JobId(1))
    agent.obey()
    agent.report()
    seconds(busy, 3)
    assert busy.job(JobId(2)).live_attempt
    before = spent(busy, 2)["resources"]
    seconds(busy, 30)
    assert spent(busy, 2)["resources"] == before
    assert busy.why(JobId(2)).waited.now == ("running",)  # type: ignore[union-attr]  # it is there


def test_a_job_that_started_at_once_has_waited_only_since_it_was_queued_again(
    master: Master,
) -> None:
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    job = master.submit(4)
    agent.obey()
    for key in list(agent.ranks):
        agent.start(key)
    agent.report()
    seconds(master, 15)
    agent.hello()
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=job.job_id))
    agent.obey()
    for key in list(agent.ranks):
        agent.exit(key)
    agent.report()
    seconds(master, 3)
    assert sum(main for _, main in spent(master, job.job_id).values()) <= 3


def test_what_was_written_is_known_after_a_restart_and_goes_on(busy: Master) -> None:
    seconds(busy, int(WRITTEN_EVERY_S) + 2)
    written = spent(busy, 2)["resources"][0]
    busy.restart()
    SimAgent(busy, NodeId("gpu01")).hello()
    seconds(busy, 10)
    assert written <= spent(busy, 2)["resources"][0] + 2
    assert sum(main for _, main in spent(busy, 2).values()) == pytest.approx(written + 10, abs=2)


def test_little_is_written_while_nothing_changes(busy: Master) -> None:
    seconds(busy, 5)
    seconds(busy, 100)
    assert busy.store.load().waited == ()
    seconds(busy, 300)
    (row,) = busy.store.load().waited
    seconds(busy, 100)
    assert busy.store.load().waited == (row,)


def test_a_long_queue_is_looked_at_in_turn(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_master.control.jobs.waits.AT_ONCE", 2)
    assert AT_ONCE == 500
    SimAgent(master, NodeId("gpu01")).hello()
    for _ in range(5):
        master.submit(4)
    seconds(master, 30)
    for number in range(2, 6):
        total = sum(main for _, main in spent(master, number).values())
        assert total == pytest.approx(30, abs=4)


def test_two_limits_of_one_kind_are_counted_apart(masters: Masters) -> None:
    """The team's limit of GPUs keeps it back at once, alice's own of jobs only once the other has
    ended.
    """
    master = masters(config_of("dlq"))
    SimAgent(master, NodeId("gpu01")).hello()

    def limits(gpus: int | None, jobs: int | None) -> None:
        own = Member("alice", TeamRules(running_jobs=jobs))
        team = Team("vision", 0.0, TeamRules(gpu_limit=gpus), None, (own,), 0)
        master.ask(SetTeam(caller=ROOT, request_id="", team=team, force=False))

    limits(2, None)
    master.submit(2)
    waits = master.submit(1)
    seconds(master, 10)
    limits(2, 1)
    seconds(master, 5)
    limits(None, 1)
    seconds(master, 7)
    found = spent(master, waits.job_id)
    gpus, jobs = "team_limit gpus of team vision", "team_limit jobs of alice in team vision"
    assert {word: held for word, (held, _) in found.items() if "limit" in word} == {
        gpus: pytest.approx(15, abs=2),
        jobs: pytest.approx(12, abs=2),
    }
    reasons = master.why(waits.job_id).reasons
    assert [it.kind.word for it in reasons if it.code is ReasonCode.TEAM_LIMIT] == [jobs]


def test_what_a_look_costs_does_not_grow_with_who_runs_has_ended_or_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlq_master.control.jobs.waits.AT_ONCE", 3)
    queued = [a_waiting_job(number) for number in range(1, 8)]
    ended = [a_job(number, state=JobState.COMPLETED) for number in range(8, 50)]
    waits = Waits((), [*queued, *ended])
    waits.touched([queued[0]._replace(live_attempt=1)])
    jobs = Counted({job.job_id: job for job in queued})
    world = World().submit(a_job(99))
    glance = ReasonSummary(View(world.cluster, 1.0), world.policy)
    for _ in range(4):
        waits.look(jobs, glance, 1.0, 0.0)
    assert jobs.read == [2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7]
    jobs.read.clear()
    for job in (queued[0], queued[2]._replace(live_attempt=1), queued[2], queued[0]):
        waits.touched([job])
    waits.forget(JobId(4))
    waits.forget(JobId(4))
    for _ in range(4):
        waits.look(jobs, glance, 1.0, 0.0)
    assert jobs.read == [2, 3, 5, 6, 7, 1, 2, 3, 5, 6, 7, 1], "nobody stands there twice"


def test_jobs_that_came_and_were_looked_at_together_share_what_is_known_of_them() -> None:
    queued = [a_waiting_job(number) for number in range(1, 6)]
    waits = Waits((), queued)
    world = World().submit(a_job(99))
    for now_s in (10.0, 20.0, 30.0):
        glance = ReasonSummary(View(world.cluster, now_s), world.policy)
        waits.look({job.job_id: job for job in queued}, glance, now_s, 0.0)
        assert len({id(known) for known in waits._known.values()}) == 1
    told = [waits.told(job.job_id, 40.0) for job in queued]
    assert {one.job_id for one in told if one} == {job.job_id for job in queued}
    assert {(one.at_s, one.spent[0].main_s, one.now) for one in told if one} == {
        (40.0, 40.0, ("behind_higher_rank",))
    }


def test_other_reasons_are_written_minutes_after_they_came(busy: Master) -> None:
    seconds(busy, int(WRITTEN_EVERY_S) + 5)
    (first,) = busy.store.load().waited
    busy.hold(JobId(2))
    seconds(busy, 100)
    busy.ask(ReleaseJob(caller=ALICE, request_id="r", job_id=JobId(2)))
    seconds(busy, 100)
    assert busy.store.load().waited == (first,), "the hold came and went within minutes"
    seconds(busy, int(WRITTEN_EVERY_S))
    (row,) = busy.store.load().waited
    assert {one.code for one in row.spent} == {"resources", "nodes_closed", "held_user"}
    assert row.now[0] == "nodes_closed", "nothing was heard of the node any more"


def test_an_ended_job_still_says_what_it_waited_for(busy: Master) -> None:
    seconds(busy, 10)
    busy.cancel(JobId(2))
    seconds(busy, 100)
    assert spent(busy, 2)["resources"] == (10, 10)
    busy.restart()
    assert spent(busy, 2)["resources"] == (10, 10)


def test_a_release_ends_the_hold(busy: Master) -> None:
    busy.hold(JobId(2))
    seconds(busy, 10)
    busy.ask(ReleaseJob(caller=ALICE, request_id="r", job_id=JobId(2)))
    seconds(busy, 10)
    found = spent(busy, 2)
    assert found["held_user"][0] + found["resources"][0] == pytest.approx(20, abs=1)
    assert found["held_user"][0] == pytest.approx(10, abs=2)
