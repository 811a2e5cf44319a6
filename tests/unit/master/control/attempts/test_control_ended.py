"""Ended jobs leave memory after a while, and everything that is asked of them is still answered."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import AlreadyExists, IllegalTransition, NotFound
from dlq_master.control.config import MasterConfig, RetentionConfig
from dlq_master.control.stimuli import (
    CancelJob,
    ExplainJob,
    Heartbeat,
    HoldJob,
    ReportedPhase,
    ReportedProgress,
    ReportedRank,
    Stop,
)
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.person import Owner
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]
HOUR_S = 3600.0


def keeping(kept_s: float = HOUR_S, most: int = 10_000) -> MasterConfig:
    retention = RetentionConfig(ended_kept=Seconds(kept_s), ended_most=most)
    return replace(config_of(), retention=retention)


def here(master: Master) -> list[int]:
    """Jobs in memory; readers see the same (`check_published`)."""
    return list(master.state.cluster.jobs)


def a_past_job(master: Master, request_id: str | None = None) -> Job:
    """One that has ended and left memory; it never ran."""
    job = master.submit(1, request_id=request_id)
    job = master.cancel(job.job_id)
    master.tick(HOUR_S + 1)
    assert here(master) == []
    return job


def test_an_ended_job_leaves_memory_after_its_time_and_is_read_from_the_disk(
    master: Master,
) -> None:
    job = master.cancel(master.submit(1).job_id)
    living = master.submit(1).job_id
    master.tick(HOUR_S - 1)
    assert here(master) == [job.job_id, living]
    master.tick(1)
    assert here(master) == [living]

    read = master.loop.published
    assert read.job(job.job_id) == job
    assert read.owner(job.job_id) == Owner("alice", "alice", job.submit_time_s)
    assert read.spec(job.job_id) == b"spec"
    assert [event.kind for event in read.events(0, 9, job.job_id)][-1] == "job_cancelled"
    assert read.complete_from_s == job.end_time_s


def test_only_the_newest_ends_are_kept(masters: Masters) -> None:
    master = masters(keeping(most=3))
    jobs = [master.submit(1).job_id for _ in range(6)]
    for job_id in reversed(jobs):
        master.clock.advance(1.0)
        master.cancel(job_id)

    assert here(master) == jobs[:3]
    master.restart()
    assert here(master) == jobs[:3]
    master.cancel(master.submit(1).job_id)
    assert here(master) == [*jobs[:2], 7]


def test_a_cancelled_job_stays_until_its_last_rank_is_gone(master: Master, agent: SimAgent) -> None:
    job = master.submit(1)
    key = AttemptKey(job.job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    master.cancel(job.job_id)
    for _ in range(80):  # nobody is silent meanwhile
        master.clock.advance(60.0)
        agent.heartbeat()
        master.tick()
    assert here(master) == [job.job_id]
    agent.cut()
    master.restart()
    agent.hello()
    assert here(master) == [job.job_id]

    agent.exit(key)
    agent.report()
    master.tick(1.0)
    assert here(master) == []
    ended = master.job(job.job_id)
    assert (ended.state, ended.live_attempt) == (JobState.CANCELLED, None)


def test_a_restart_loads_the_same_window_and_no_number_twice(masters: Masters) -> None:
    master = masters(keeping(kept_s=60.0))
    for _ in range(4):
        master.cancel(master.submit(1).job_id)
        master.tick(25.0)
    before = here(master)
    assert before == [3, 4]
    master.restart()
    assert set(here(master)) >= set(before), "ages count from the newest event at first"
    master.turn()
    assert here(master) == before
    master.tick(1000.0)
    master.restart()
    master.turn()
    assert here(master) == []
    assert master.submit(1).job_id == 5


def test_a_job_that_never_said_anything_has_said_nothing(master: Master, agent: SimAgent) -> None:
    job = master.submit(1, caller=ALICE)
    agent.obey()
    agent.start(AttemptKey(job.job_id, 1))
    agent.report()
    master.clock.advance(2.0)
    word = ReportedProgress(
        key=AttemptKey(job.job_id, 1), epoch=master.state.epoch, node_rank=0, step=None, total=None,
        loss=None, age_s=None,
    )  # fmt: skip
    assert agent.session_id is not None
    said = Heartbeat(node_id=agent.node_id, session_id=agent.session_id, progress=(word,))
    master.turn(said)
    assert master.loop.published.progress(job.job_id) is None
    master.turn(replace(said, progress=(replace(word, age_s=2.0),)))
    beat = master.loop.published.progress(job.job_id)
    assert beat is not None
    assert beat.time_s == master.clock.now_s() - 2.0


def test_what_jobs_said_of_themselves_is_let_go_with_them(master: Master, agent: SimAgent) -> None:
    job = master.submit(1, caller=ALICE)
    agent.obey()
    agent.start(AttemptKey(job.job_id, 1))
    agent.report()
    word = ReportedProgress(
        key=AttemptKey(job.job_id, 1),
        epoch=master.state.epoch,
        node_rank=0,
        step=5,
        total=None,
        loss=None,
        age_s=0.0,
    )
    assert agent.session_id is not None
    said = Heartbeat(node_id=agent.node_id, session_id=agent.session_id, progress=(word,))
    master.turn(said)
    agent.exit(AttemptKey(job.job_id, 1))
    agent.report()
    assert job.job_id in master.state.jobs.beats
    master.tick(HOUR_S + 1)
    assert master.state.jobs.beats == {}


def test_a_repeated_submission_of_an_old_job_is_answered_with_it(master: Master) -> None:
    job = a_past_job(master, request_id="mine")
    again = master.ask(master.submission(1, request_id="mine"))

    assert again.job == master.job(job.job_id)
    assert [reason.code.value for reason in again.reasons] == ["ended"]
    assert here(master) == []
    with pytest.raises(AlreadyExists):
        master.ask(master.submission(1, request_id="mine", digest="other"))


def test_edits_of_an_old_job_do_what_they_do_to_any_that_has_ended(master: Master) -> None:
    job = a_past_job(master)

    assert master.cancel(job.job_id) == job
    with pytest.raises(IllegalTransition, match="has ended"):
        master.hold(job.job_id, kind=HoldKind.USER)
    with pytest.raises(NotFound):
        master.edit(CancelJob, job.job_id, caller=replace(ALICE, name="bob"))
    with pytest.raises(NotFound):
        master.edit(HoldJob, JobId(job.job_id + 1), kind=HoldKind.USER)
    assert here(master) == []


def test_why_answers_for_an_old_job(master: Master) -> None:
    job = a_past_job(master)
    explained = master.why(job.job_id)

    assert explained.job == job
    assert [reason.code.value for reason in explained.reasons] == ["ended"]
    assert explained.jobs_ahead is None
    with pytest.raises(NotFound):
        master.ask(ExplainJob(job_id=JobId(99)))


def test_a_rank_of_an_old_job_that_still_runs_is_told_to_stop(master: Master) -> None:
    """Its node was away for long: the job is known, so it is a stray and not an orphan."""
    job = a_past_job(master)
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    report = ReportedRank(
        key=AttemptKey(job.job_id, 1), epoch=1, node_rank=0, phase=ReportedPhase.STARTED, sequence=1
    )
    agent.send([report])

    stops = [
        command for _, command in master.wires.sent[agent.node_id] if isinstance(command, Stop)
    ]
    assert [stop.key for stop in stops] == [report.key]
    assert "orphan_seen" not in master.words()
    assert here(master) == []


def test_many_ends_at_once_leave_over_several_turns(masters: Masters) -> None:
    master = masters(keeping())
    answers = master.turn(*(master.submission() for _ in range(1_500)))
    master.turn(
        *(CancelJob(caller=ALICE, request_id="", job_id=answer.job.job_id) for answer in answers)
    )
    master.tick(HOUR_S)
    assert len(here(master)) == 500
    master.tick()
    assert here(master) == []
