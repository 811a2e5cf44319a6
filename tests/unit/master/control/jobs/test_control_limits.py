"""Time limits: a warning before, the end at it, and only time in RUNNING counts."""

import pytest

from dlq_master.control.jobs.limits import STARTUP_S
from dlq_master.control.stimuli import CancelJob, Launch, PauseJob, ResumeJob, Signal, Stop
from dlq_master.model.attempts.grace import limit_left_s
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import JobState, RunRules
from support.master_harness import ALICE, Master
from support.sim_agent import SimAgent

WARNED = RunRules(warn_s=60.0)


def running(
    master: Master, agent: SimAgent, limit_s: float, rules: RunRules = WARNED
) -> AttemptKey:
    key = AttemptKey(master.submit(2, rules=rules, time_limit_s=limit_s).job_id, 1)
    start(agent, key)
    return key


def start(agent: SimAgent, key: AttemptKey) -> None:
    agent.obey()
    agent.start(key)
    agent.report()


def passes(master: Master, agent: SimAgent, seconds: float) -> None:
    """Time in which the node is heard of."""
    left_s = seconds
    while left_s > 0:
        step_s = min(10.0, left_s)
        master.clock.advance(step_s)
        agent.heartbeat()
        left_s -= step_s
    master.tick()
    agent.obey()


def stops(agent: SimAgent, master: Master) -> list[Stop]:
    sent = master.wires.sent[agent.node_id]
    return [command for _, command in sent if isinstance(command, Stop)]


def test_a_job_is_warned_once_by_its_own_signal_and_goes_on(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent, 200.0)
    passes(master, agent, 139.0)
    assert agent.words == []
    passes(master, agent, 1.0)
    (word,) = agent.words
    assert isinstance(word, Signal)
    assert (word.key, word.signal) == (key, "")
    assert master.attempt(key.job_id).state == "running"
    passes(master, agent, 30.0)
    assert len(agent.words) == 1
    assert "attempt_warned" in master.words(key.job_id)
    (told,) = [e for e in master.events(key.job_id) if e.kind == "rank_signalled"]
    assert (told.actor, told.node_id) == ("node:gpu01", "gpu01")


def test_who_was_warned_has_half_a_minute_at_the_limit(master: Master, agent: SimAgent) -> None:
    key = running(master, agent, 200.0)
    passes(master, agent, 150.0)
    passes(master, agent, 50.0)
    (stop,) = stops(agent, master)
    assert (stop.cause, stop.grace_s) == ("time_limit", 30.0)
    agent.exit(key, 0)
    agent.report()
    assert master.job(key.job_id).state is JobState.TIMED_OUT


def test_who_was_not_warned_has_its_whole_grace(master: Master, agent: SimAgent) -> None:
    running(master, agent, 100.0, RunRules())
    passes(master, agent, 100.0)
    (stop,) = stops(agent, master)
    assert stop.grace_s == 300.0
    assert agent.words == []


def test_nobody_is_warned_in_the_first_seconds(master: Master, agent: SimAgent) -> None:
    running(master, agent, 50.0)
    passes(master, agent, STARTUP_S - 1.0)
    assert agent.words == []
    passes(master, agent, 1.0)
    assert len(agent.words) == 1


def test_a_limit_shorter_than_the_first_seconds_warns_nobody(
    master: Master, agent: SimAgent
) -> None:
    running(master, agent, 10.0)
    passes(master, agent, 10.0)
    assert agent.words == []
    assert len(stops(agent, master)) == 1


def test_a_restart_of_the_master_warns_nobody_twice(master: Master, agent: SimAgent) -> None:
    key = running(master, agent, 200.0)
    passes(master, agent, 150.0)
    assert len(agent.words) == 1
    agent.cut()
    master.restart()
    agent.hello()
    passes(master, agent, 20.0)
    assert len(agent.words) == 1
    assert master.attempt(key.job_id).warned_time_s is not None


def test_a_warning_that_was_on_its_way_reaches_a_node_that_comes_back(
    master: Master, agent: SimAgent
) -> None:
    running(master, agent, 200.0)
    master.clock.advance(5.0)
    agent.cut()
    for _ in range(15):
        master.tick(10.0)
    agent.hello()
    master.tick()
    agent.obey()
    assert len(agent.words) == 1


def test_waiting_and_preparing_do_not_count(master: Master, agent: SimAgent) -> None:
    job_id = master.submit(2, rules=WARNED, time_limit_s=100.0).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    passes(master, agent, 500.0)  # it prepares: an image is fetched
    assert stops(agent, master) == []
    start(agent, key)
    passes(master, agent, 30.0)
    master.edit(PauseJob, job_id)
    agent.obey()
    agent.exit(key, 99)
    agent.report()
    passes(master, agent, 500.0)  # it is paused
    master.edit(ResumeJob, job_id)
    start(agent, AttemptKey(job_id, 2))
    before = len(stops(agent, master))
    passes(master, agent, 60.0)
    assert len(stops(agent, master)) == before
    assert len(agent.words) == 1  # 40 s left of 100, 60 before the end
    passes(master, agent, 10.0)
    assert [stop.cause for stop in stops(agent, master)][before:] == ["time_limit"]
    assert master.job(JobId(job_id)).total_executed_s == 30.0


@pytest.mark.parametrize("restarts", [True, False], ids=["master away", "line cut"])
@pytest.mark.parametrize(
    ("code", "state"), [(0, JobState.COMPLETED), (3, JobState.FAILED)], ids=["good", "bad"]
)
def test_who_ended_within_its_limit_is_judged_by_its_exit_although_it_is_heard_of_later(
    master: Master, agent: SimAgent, code: int, state: JobState, restarts: bool
) -> None:
    key = running(master, agent, 200.0)
    began_s = master.clock.now_s()
    passes(master, agent, 50.0)
    agent.cut()
    master.clock.advance(100.0)
    agent.exit(key, code)
    if restarts:
        master.clock.advance(500.0)
        master.restart()
    for _ in range(50):
        master.tick(10.0)
    agent.hello()

    job, attempt = master.job(key.job_id), master.ended(key.job_id, 1)
    assert (job.state, job.exit_code) == (state, code)
    assert ("attempt_stop_requested" in master.words(key.job_id)) is not restarts
    assert job.total_executed_s == pytest.approx(150.0), "nobody pays for the time in between"
    assert job.attained_gpu_s == pytest.approx(300.0)
    assert job.end_time_s == attempt.ended_time_s == pytest.approx(began_s + 150.0)


def test_who_went_on_beyond_its_limit_while_there_was_no_master_is_stopped(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent, 200.0)
    agent.cut()
    master.clock.advance(500.0)
    master.restart()
    master.tick(1.0)
    assert stops(agent, master) == []
    agent.hello()
    master.tick(1.0)
    agent.obey()
    (stop,) = stops(agent, master)
    assert stop.cause == "time_limit"
    agent.exit(key, 0)
    agent.report()
    assert master.job(key.job_id).state is JobState.TIMED_OUT


def test_who_ended_before_it_was_to_make_room_has_not_been_taken_off(
    master: Master, agent: SimAgent
) -> None:
    key = AttemptKey(master.submit(2).job_id, 1)
    start(agent, key)
    agent.cut()
    master.clock.advance(5.0)
    agent.exit(key, 0)
    master.clock.advance(5.0)
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=key.job_id))
    agent.hello()
    assert master.job(key.job_id).state is JobState.COMPLETED


EACH = RunRules(limit_each=True)


def test_a_limit_of_each_attempt_begins_anew_after_a_requeue(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent, 100.0, EACH._replace(warn_s=30.0))
    passes(master, agent, 80.0)
    assert len(agent.words) == 1, "warned of the end of its first attempt"
    agent.exit(key, 99)  # it has saved, and asks to be run again
    agent.report()
    assert master.job(key.job_id).state is JobState.QUEUED
    again = AttemptKey(key.job_id, 2)
    start(agent, again)
    passes(master, agent, 60.0)
    assert len(agent.words) == 1
    passes(master, agent, 10.0)
    assert len(agent.words) == 2
    assert stops(agent, master) == []
    passes(master, agent, 30.0)
    assert [stop.cause for stop in stops(agent, master)] == ["time_limit"]


def test_every_launch_is_told_the_time_of_its_own_attempt(master: Master, agent: SimAgent) -> None:
    told = {}
    for rules in (EACH, RunRules()):
        key = running(master, agent, 100.0, rules)
        passes(master, agent, 40.0)
        agent.exit(key, 99)
        agent.report()
        agent.obey()
        launches = [it for _, it in master.wires.sent[agent.node_id] if isinstance(it, Launch)]
        told[rules.limit_each] = [it.time_left_s for it in launches if it.key.job_id == key.job_id]
        agent.start(AttemptKey(key.job_id, 2))
        agent.exit(AttemptKey(key.job_id, 2), 0)
        agent.report()
    assert told == {True: [100.0, 100.0], False: [100.0, 60.0]}


@pytest.mark.parametrize(
    ("rules", "state"), [(EACH, JobState.QUEUED), (RunRules(), JobState.TIMED_OUT)]
)
def test_who_asks_at_its_limit_to_run_again_does_where_an_attempt_has_a_limit_of_its_own(
    master: Master, agent: SimAgent, rules: RunRules, state: JobState
) -> None:
    key = running(master, agent, 100.0, rules)
    passes(master, agent, 100.0)
    assert [stop.cause for stop in stops(agent, master)] == ["time_limit"]
    agent.exit(key, 99)
    agent.report()
    assert master.job(key.job_id).state is state


def test_requeues_of_attempts_that_got_on_are_not_counted_against_the_job(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent, 7200.0, EACH._replace(max_requeues=2))
    for number in range(2, 7):
        passes(master, agent, 3600.0)
        agent.exit(AttemptKey(key.job_id, number - 1), 99)
        agent.report()
        assert master.job(key.job_id).state is JobState.QUEUED, number
        start(agent, AttemptKey(key.job_id, number))


def test_a_job_of_slurm_has_slurms_wait_at_its_limit_and_when_it_is_cancelled(
    master: Master, agent: SimAgent
) -> None:
    key = AttemptKey(master.submit(1, ends_as_slurm=True, time_limit_s=100.0).job_id, 1)
    start(agent, key)
    other = AttemptKey(master.submit(1, ends_as_slurm=True).job_id, 1)
    start(agent, other)
    plain = AttemptKey(master.submit(1).job_id, 1)
    start(agent, plain)
    master.edit(CancelJob, other.job_id)
    master.edit(CancelJob, plain.job_id)
    passes(master, agent, 100.0)
    told = {stop.key: (stop.cause, stop.grace_s) for stop in stops(agent, master)}
    assert told == {
        other: ("cancel", 30.0),
        plain: ("cancel", 300.0),
        key: ("time_limit", 30.0),
    }


def test_the_time_that_is_left_is_that_of_the_attempt(master: Master, agent: SimAgent) -> None:
    key = running(master, agent, 100.0, EACH)
    passes(master, agent, 40.0)
    attempt, now_s = master.attempt(key.job_id), master.clock.now_s()
    assert limit_left_s(master.job(key.job_id), attempt, now_s) == pytest.approx(60.0)
    agent.exit(key, 99)
    agent.report()
    job = master.job(key.job_id)
    assert job.total_executed_s == pytest.approx(40.0)
    assert limit_left_s(job, None, now_s) == job.limit_at_start_s == 100.0
    whole = job._replace(rules=RunRules())
    assert limit_left_s(whole, None, now_s) == whole.limit_at_start_s == pytest.approx(60.0)
