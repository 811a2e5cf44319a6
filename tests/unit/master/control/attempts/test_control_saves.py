"""What a job's saves teach the master: how long it must be given, whichever rank speaks first."""

from dataclasses import replace

import pytest

from dlq_master.control.stimuli import RequeueJob, Stop
from dlq_master.model.attempts.gang import FOLLOW_S
from dlq_master.model.attempts.grace import grace_s
from support.master_harness import Master
from support.running import running
from support.sim_agent import SimAgent

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


def stops_heard(agent: SimAgent) -> list[tuple[str, float]]:
    """What it was told and has not obeyed yet: why it must stop, and within how many seconds."""
    agent.receive()
    return [(it.cause, it.grace_s) for it in agent.inbox if isinstance(it, Stop)]


@pytest.mark.parametrize("proof", ["code", "checkpoint"])
def test_when_rank_0_has_saved_and_left_the_others_need_not_wait_for_the_end_of_the_grace(
    master: Master, agent: SimAgent, other: SimAgent, proof: str
) -> None:
    key = running(master, agent, other)
    master.edit(RequeueJob, key.job_id)
    assert stops_heard(other) == [("requeue", 300.0)]
    for one in (agent, other):
        one.obey()
        one.report()
    if proof == "checkpoint":
        agent.save(key, 10)
    agent.exit(key, code=99 if proof == "code" else 1)
    agent.report()
    assert stops_heard(other) == [("requeue", FOLLOW_S)]
    other.obey()
    other.crash(key, 9)
    other.report()

    assert master.ended(key.job_id, 1).state == "preempted"
    assert (master.job(key.job_id).preemptions, master.job(key.job_id).restarts) == (1, 0)


@pytest.mark.parametrize(("rank", "code"), [(0, 0), (0, 1), (1, 99)])
def test_a_rank_that_leaves_without_proof_or_speaks_for_itself_hurries_nobody(
    master: Master, agent: SimAgent, other: SimAgent, rank: int, code: int
) -> None:
    key = running(master, agent, other)
    master.edit(RequeueJob, key.job_id)
    first, second = (agent, other) if rank == 0 else (other, agent)
    for one in (agent, other):
        one.obey()
        one.report()
    first.exit(key, code=code)
    first.report()
    assert stops_heard(second) == []
