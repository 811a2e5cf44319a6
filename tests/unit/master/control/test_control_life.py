"""Whole lives of jobs: submitted, started, reported, ended; with a restart of the master
anywhere.
"""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import (
    Launch,
    PauseJob,
    RankReports,
    ReleaseJob,
    ReportedPhase,
    ReportedRank,
    ResumeJob,
    Stop,
)
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import EndReason, Job, JobState, RunRules
from support.master_harness import Master
from support.sim_agent import SimAgent

Restart = Callable[[str], None]
STEPS = ("submitted", "assigned", "taken", "prepared", "running", "saved", "pausing", "exited")


def test_a_job_lives_from_submission_to_completion(master: Master, agent: SimAgent) -> None:
    job = master.submit(2)
    key = AttemptKey(job.job_id, 1)
    (_, launch) = master.wires.sent[agent.node_id][-1]
    assert isinstance(launch, Launch)
    assert (launch.key, launch.gpu_indexes, launch.spec) == (key, (0, 1), b"spec")
    agent.obey()
    agent.report()
    assert master.attempt(job.job_id).state == "preparing"
    agent.start(key)
    agent.report()
    assert master.attempt(job.job_id).state == "running"
    master.clock.advance(30.0)
    agent.exit(key)
    agent.report()

    job = master.job(job.job_id)
    assert (job.state, job.exit_code, job.total_gpu_s) == (JobState.COMPLETED, 0, 60.0)
    assert master.state.attempts.outbox == {}
    assert master.words(job.job_id) == [
        "job_submitted",
        "job_admitted",
        "attempt_assigned",
        "profile_ordered",
        "attempt_preparing",
        "attempt_running",
        "job_ran",
        "rank_exited",
        "attempt_succeeded",
        "job_completed",
    ]


@pytest.mark.parametrize("when", STEPS)
def test_the_master_may_die_at_any_step_of_a_paused_and_resumed_life(
    master: Master, agent: SimAgent, when: str
) -> None:
    def point(step: str) -> None:
        if step == when:
            agent.cut()
            master.restart()
            agent.hello()

    job_id = master.submit(2).job_id
    point("submitted")
    key = AttemptKey(job_id, 1)
    point("assigned")
    agent.obey()
    point("taken")
    agent.report()
    point("prepared")
    agent.start(key)
    agent.report()
    point("running")
    agent.save(key, 7)
    agent.report()
    point("saved")
    pause(master, job_id)
    agent.obey()
    point("pausing")
    master.clock.advance(1.0)
    agent.save(key, 9)
    agent.exit(key, 99)
    point("exited")
    agent.report()

    job = master.job(job_id)
    assert (job.state, job.end_reason) == (JobState.HELD, EndReason.PREEMPTED), master.story()
    master.edit(ResumeJob, job_id)
    agent.obey()
    launch = agent.ranks[AttemptKey(job_id, 2)].launch
    assert launch.resume_from == f"/ckpt/{key}/9"
    finish(agent, AttemptKey(job_id, 2))
    assert master.job(job_id).state is JobState.COMPLETED
    assert master.words(job_id).count("attempt_assigned") == 2


def pause(master: Master, job_id: JobId) -> Job:
    return master.edit(PauseJob, job_id)


def finish(agent: SimAgent, key: AttemptKey, code: int = 0) -> None:
    """Start what is prepared, end it, tell."""
    agent.obey()
    agent.start(key)
    agent.report()
    agent.exit(key, code)
    agent.report()


def test_an_exit_that_was_never_told_as_running_counts_as_run(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit().job_id
    agent.obey()
    agent.start(AttemptKey(job_id, 1))
    agent.exit(AttemptKey(job_id, 1))
    agent.report()

    assert master.job(job_id).state is JobState.COMPLETED
    assert "attempt_running" in master.words(job_id)


def test_a_job_that_a_signal_ended_says_which(master: Master, agent: SimAgent) -> None:
    job_id = master.submit().job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    agent.crash(key, signal=11)
    agent.report()
    master.restart()

    job = master.job(job_id)
    assert (job.state, job.end_reason, job.signal) == (JobState.FAILED, EndReason.SIGNAL, 11)


def test_a_job_that_fails_is_failed_with_its_code(master: Master, agent: SimAgent) -> None:
    job_id = master.submit().job_id
    agent.obey()
    finish(agent, AttemptKey(job_id, 1), code=3)

    job = master.job(job_id)
    assert (job.state, job.end_reason, job.exit_code) == (
        JobState.FAILED,
        EndReason.USER_ERROR,
        3,
    )


def test_restarts_are_used_up_one_by_one(master: Master, agent: SimAgent) -> None:
    job_id = master.submit(rules=RunRules(max_restarts=2)).job_id
    for number in (1, 2, 3):
        assert master.job(job_id).state is JobState.QUEUED
        finish(agent, AttemptKey(job_id, number), code=1)

    assert master.job(job_id).state is JobState.FAILED
    assert master.job(job_id).restarts == 2


def test_a_start_that_fails_three_times_is_poison_and_holds_the_job(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit().job_id
    for number in (1, 2, 3):
        agent.obey()
        agent.fail_start(AttemptKey(job_id, number))
        agent.report()

    job = master.job(job_id)
    assert (job.state, job.hold_reason) == (JobState.HELD, "start_failed")
    assert master.ended(job_id, 3).stop_detail == "no such directory"
    master.edit(ReleaseJob, job_id)
    agent.obey()
    agent.fail_start(AttemptKey(job_id, 4))
    agent.report()
    assert master.job(job_id).live_attempt == 5, "released, it is given its chances again"


def test_a_job_is_stopped_at_its_time_limit_over_all_attempts(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit(time_limit_s=100.0, rules=RunRules(max_restarts=1)).job_id
    agent.obey()
    agent.start(AttemptKey(job_id, 1))
    agent.report()
    master.clock.advance(60.0)
    agent.exit(AttemptKey(job_id, 1), 1)
    agent.report()
    agent.obey()
    assert agent.ranks[AttemptKey(job_id, 2)].launch.time_left_s == 40.0
    agent.start(AttemptKey(job_id, 2))
    agent.report()
    agent.heartbeat()
    master.tick(39.0)
    assert master.attempt(job_id).stop_cause is None
    master.tick(1.0)
    assert master.attempt(job_id).stop_cause == "time_limit"
    agent.obey()
    agent.exit(AttemptKey(job_id, 2), 143)
    agent.report()

    assert master.job(job_id).state is JobState.TIMED_OUT


def test_a_gang_runs_when_all_ranks_run_and_ends_when_all_are_gone(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    job_id = master.submit(8, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    for one in (agent, other):
        one.obey()
        one.start(key)
    agent.report()
    assert master.attempt(job_id).state == "starting"
    other.report()
    assert master.attempt(job_id).state == "running"
    agent.exit(key)
    agent.report()
    assert master.attempt(job_id).state == "running"
    other.exit(key)
    other.report()
    assert master.job(job_id).state is JobState.COMPLETED


def test_when_one_rank_fails_all_are_ended_and_the_first_to_fail_is_named(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    job_id = master.submit(8, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    for one in (agent, other):
        one.obey()
        one.start(key)
        one.report()
    other.exit(key, 7)
    other.report()
    attempt = master.attempt(job_id)
    assert (attempt.state, attempt.stop_cause, attempt.first_failed_rank) == (
        "pausing",
        "gang_failure",
        1,
    )
    _, stop = master.wires.sent[agent.node_id][-1]
    assert isinstance(stop, Stop)
    assert (stop.cause, stop.grace_s) == ("gang_failure", 0.0)
    assert master.loop.published.free_gpu_count(other.node_id) == 0, "the gang still holds them"
    agent.obey()
    agent.exit(key, 137, "killed")
    agent.report()

    job = master.job(job_id)
    assert (job.state, job.exit_code) == (JobState.FAILED, 7)
    assert master.loop.published.free_gpu_count(other.node_id) == 4


def test_a_gang_whose_rank_cannot_start_ends_on_all_nodes_as_start_failed(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    job_id = master.submit(8, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    other.obey()
    agent.fail_start(key)
    agent.report()
    other.obey()
    other.report()

    assert master.ended(job_id, 1).state == "start_failed"
    assert master.job(job_id).live_attempt == 2, "it is tried again"


@pytest.mark.parametrize(
    ("code", "saves", "reason", "state"),
    [
        (99, False, EndReason.PREEMPTED, JobState.HELD),
        (0, True, EndReason.PREEMPTED, JobState.HELD),
        (1, True, EndReason.PREEMPTED, JobState.HELD),
        (143, False, EndReason.PREEMPTED_LOST, JobState.HELD),
        (0, False, EndReason.PREEMPTED_LOST, JobState.HELD),
    ],
)
def test_only_a_checkpoint_after_the_notice_or_the_code_proves_a_good_pause(
    master: Master, agent: SimAgent, code: int, saves: bool, reason: EndReason, state: JobState
) -> None:
    job_id = master.submit().job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.save(key, 1)
    agent.report()
    master.clock.advance(100.0)
    pause(master, job_id)
    agent.obey()
    agent.report()
    if saves:
        agent.save(key, 2)
        agent.report()
    agent.exit(key, code)
    agent.report()

    job = master.job(job_id)
    assert (job.end_reason, job.state) == (reason, state), master.story(job_id)
    assert (job.lost_gpu_s > 0.0) == (reason is EndReason.PREEMPTED_LOST)


def test_jobs_that_wait_start_when_gpus_are_free_in_their_order(
    master: Master, agent: SimAgent
) -> None:
    first, second, third = (master.submit(width).job_id for width in (4, 4, 1))
    assert master.why(second).reasons[0].code == "resources"
    agent.obey()
    finish(agent, AttemptKey(first, 1))
    assert master.job(second).live_attempt == 1
    assert master.job(third).live_attempt is None
    finish(agent, AttemptKey(second, 1))
    assert master.job(third).live_attempt == 1


def test_what_a_node_says_of_an_end_is_kept_with_the_rank(master: Master, agent: SimAgent) -> None:
    """A command that does not exist is the user's mistake: the code is 127, the words say which."""
    key = AttemptKey(master.submit(1).job_id, 1)
    agent.obey()
    words = "exec: No such file or directory: 'nonexistent-cmd'"
    report = ReportedRank(
        sequence=1,
        key=key,
        epoch=master.attempt(key.job_id).epoch,
        node_rank=0,
        phase=ReportedPhase.EXITED,
        exit_code=127,
        error=words,
    )
    assert agent.session_id is not None
    master.ask(RankReports(node_id=agent.node_id, session_id=agent.session_id, reports=(report,)))

    job = master.job(key.job_id)
    assert (job.state, job.end_reason, job.exit_code) == ("failed", "user_error", 127)
    assert master.ended(key.job_id, 1).ranks[0].words == words
