"""Attended jobs: they live while their clients say so, over a restart, and never run again."""

import pytest

from dlq_common.errors import NotFound
from dlq_master.control.people.attendance import CLIENT_GONE
from dlq_master.control.stimuli import AttendJob, Caller
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import EndReason, Job, JobState, RunRules
from support.master_harness import ALICE, Master
from support.sim_agent import SimAgent

ATTENDED = RunRules(attended=True)
SILENCE_S = 30.0


def attend(master: Master, job_id: JobId, *, bind: bool = False) -> Job:
    answer: Job = master.ask(AttendJob(caller=ALICE, job_id=job_id, bind=bind))
    return answer


def running(master: Master, agent: SimAgent, rules: RunRules) -> JobId:
    job_id = master.submit(2, rules=rules).job_id
    agent.obey()
    agent.start(AttemptKey(job_id, 1))
    agent.report()
    return job_id


def test_a_waiting_job_without_its_client_is_cancelled(master: Master) -> None:
    job_id = master.submit(2, rules=ATTENDED).job_id
    master.tick(SILENCE_S - 1.0)
    assert not master.job(job_id).ended
    master.tick(2.0)
    assert master.job(job_id).state is JobState.CANCELLED
    (told,) = [event for event in master.events(job_id) if event.kind == "job_cancelled"]
    assert told.cause == CLIENT_GONE


def test_a_client_that_speaks_keeps_its_job(master: Master) -> None:
    job_id = master.submit(2, rules=ATTENDED).job_id
    for _ in range(5):
        master.tick(SILENCE_S - 1.0)
        assert attend(master, job_id).job_id == job_id
    assert not master.job(job_id).ended
    master.tick(SILENCE_S + 1.0)
    assert master.job(job_id).ended


def test_other_jobs_need_no_client(master: Master) -> None:
    job_id = master.submit(2).job_id
    attend(master, job_id)
    master.tick(10 * SILENCE_S)
    assert not master.job(job_id).ended


def test_a_job_is_bound_while_it_runs(master: Master, agent: SimAgent) -> None:
    job_id = running(master, agent, RunRules())
    attend(master, job_id, bind=True)
    attend(master, job_id, bind=True)
    assert master.job(job_id).rules.attended
    assert master.words(job_id).count("job_updated") == 1
    agent.heartbeat()
    master.tick(SILENCE_S + 1.0)
    assert master.job(job_id).ended


def test_a_restart_begins_the_silence_anew(master: Master) -> None:
    job_id = master.submit(2, rules=ATTENDED).job_id
    master.tick(SILENCE_S - 1.0)
    master.restart()
    master.tick(SILENCE_S - 1.0)
    assert not master.job(job_id).ended
    master.tick(2.0)
    assert master.job(job_id).ended


def test_a_job_that_was_lost_with_its_node_is_not_run_again(
    master: Master, agent: SimAgent
) -> None:
    job_id = running(master, agent, ATTENDED)
    agent.exit(AttemptKey(job_id, 1), code=99)
    agent.report()
    job = master.job(job_id)
    assert (job.state, job.end_reason) == (JobState.FAILED, EndReason.REQUEUE_EXIT)
    assert job.attempts == 1


def test_nobody_keeps_the_job_of_another(master: Master) -> None:
    job_id = master.submit(2, rules=ATTENDED).job_id
    with pytest.raises(NotFound):
        master.ask(AttendJob(caller=Caller("bob", "user"), job_id=job_id))


def test_a_job_that_ended_stays_as_it_is(master: Master) -> None:
    job_id = master.submit(2, rules=ATTENDED).job_id
    master.cancel(job_id)
    assert attend(master, job_id, bind=True).state is JobState.CANCELLED
    master.tick(SILENCE_S + 1.0)
