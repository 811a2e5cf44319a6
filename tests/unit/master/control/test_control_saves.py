"""What a job's saves teach the master: how long it must be given, whichever rank speaks first."""

from dataclasses import replace

import pytest

from dlq_master.model.grace import grace_s
from support.master_harness import Master
from support.sim_agent import SimAgent
from unit.master.control.test_control_nodes import running

SAVE_S = 100.0


@pytest.mark.parametrize("saver_first", [False, True])
def test_a_gang_learns_from_the_rank_that_saves_whoever_reports_first(
    master: Master, agent: SimAgent, other: SimAgent, saver_first: bool
) -> None:
    key = running(master, agent, other)
    master.clock.advance(30.0)
    agent.save(key, 10, save_s=SAVE_S)
    other.save(key, 10)
    for one in (agent, other) if saver_first else (other, agent):
        one.report()

    job = master.job(key.job_id)
    assert job.saves == (SAVE_S,)
    assert grace_s(job.saves, job.rules) == 1.5 * SAVE_S + 15.0
    assert job.checkpoint is not None
    assert (job.checkpoint.step, job.checkpoint.save_s) == (10, SAVE_S)


def test_one_save_is_learned_once_however_often_it_is_told(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    master.clock.advance(30.0)
    for _ in range(3):
        for one in (other, agent):
            one.save(key, 10, save_s=SAVE_S if one is agent else None)
            one.report()
    assert master.job(key.job_id).saves == (SAVE_S,)
    assert master.words(key.job_id).count("job_saved") == 2, "it was known before its time was"


def test_what_was_learned_survives_a_restart_and_is_not_learned_again(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    master.clock.advance(30.0)
    other.save(key, 10)
    other.report()
    master.restart()
    for one in (other, agent):
        one.hello()
    agent.save(key, 10, save_s=SAVE_S)
    agent.report()
    master.restart()
    for one in (other, agent):
        one.hello()
    agent.save(key, 10, save_s=SAVE_S)
    agent.report()
    assert master.job(key.job_id).saves == (SAVE_S,)


def test_an_older_checkpoint_that_is_told_late_changes_nothing(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    master.clock.advance(30.0)
    agent.save(key, 10, save_s=SAVE_S)
    (late,) = agent.waiting_reports()
    assert late.checkpoint is not None
    master.clock.advance(30.0)
    other.save(key, 20)
    other.report()
    agent.send([replace(late, checkpoint=replace(late.checkpoint, age_s=30.0))])
    job = master.job(key.job_id)
    assert job.checkpoint is not None
    assert (job.checkpoint.step, job.saves) == (20, ())
