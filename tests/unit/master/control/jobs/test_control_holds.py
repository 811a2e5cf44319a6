"""Holds and pauses: no hold is weakened by another, and nobody lifts one that is not theirs."""

import pytest

from dlq_common.errors import IllegalTransition, PermissionDenied
from dlq_master.control.stimuli import HoldJob, PauseJob, ReleaseJob, ResumeJob
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import HoldKind
from support.master_harness import ALICE, ROOT, Master
from support.sim_agent import SimAgent


def running(master: Master, agent: SimAgent) -> AttemptKey:
    key = AttemptKey(master.submit(2).job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def test_pausing_a_job_that_an_operator_holds_does_not_lift_the_hold(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    hold = HoldJob(caller=ROOT, request_id="h", job_id=key.job_id, kind=HoldKind.ADMIN)
    master.ask(hold)
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=key.job_id))
    assert master.attempt(key.job_id).stop_cause == "pause"
    agent.obey()
    agent.exit(key, 99)
    agent.report()

    assert master.job(key.job_id).hold is HoldKind.ADMIN
    with pytest.raises(IllegalTransition):
        master.ask(ResumeJob(caller=ALICE, request_id="r", job_id=key.job_id))
    with pytest.raises(PermissionDenied):
        master.ask(ReleaseJob(caller=ALICE, request_id="l", job_id=key.job_id))
    assert master.job(key.job_id).live_attempt is None


def test_a_release_does_not_end_a_pause(master: Master) -> None:
    job_id = master.submit(2).job_id
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=job_id))
    with pytest.raises(IllegalTransition):
        master.ask(ReleaseJob(caller=ALICE, request_id="l", job_id=job_id))
    master.ask(ResumeJob(caller=ALICE, request_id="r", job_id=job_id))
    assert master.job(job_id).hold is None


def test_a_users_hold_takes_the_place_of_a_pause_and_stays(master: Master) -> None:
    job_id = master.submit(2).job_id
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=job_id))
    master.ask(HoldJob(caller=ALICE, request_id="h", job_id=job_id))
    with pytest.raises(IllegalTransition):
        master.ask(ResumeJob(caller=ALICE, request_id="r", job_id=job_id))
    assert master.job(job_id).hold is HoldKind.USER
