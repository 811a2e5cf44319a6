"""Guards against thrashing in a master: what is measured, who is told what, and what survives a
restart.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dlq_master.control.stimuli import Heartbeat, ReportedProgress
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.lease import Terms
from dlq_master.policy.stop_costs import pause_and_resume_s
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.placement.test_control_preempt import go_on

LONG, SHORT = 50_000.0, 100.0


@pytest.fixture
def srtf(masters: Callable[..., Master]) -> Master:
    """The shortest remaining time first; nobody is preempted more than once."""
    return masters(config_of("srtf", max_preemptions="1"))


@pytest.fixture
def node(srtf: Master) -> SimAgent:
    """One node with four GPUs."""
    agent = SimAgent(srtf, NodeId("gpu01"))
    agent.hello()
    return agent


def submit(master: Master, run_s: float, **more: Any) -> JobId:
    return master.submit(4, run_estimate_s=run_s, **more).job_id


def beat(agent: SimAgent, key: AttemptKey, age_s: float = 0.0) -> None:
    """A heartbeat in which the rank tells of a step that it made so long ago."""
    assert agent.session_id is not None
    word = ReportedProgress(
        key=key,
        epoch=agent.ranks[key].launch.epoch,
        node_rank=0,
        step=1,
        total=None,
        loss=None,
        age_s=age_s,
    )
    agent.master.turn(
        Heartbeat(node_id=agent.node_id, session_id=agent.session_id, progress=(word,))
    )


def preempt(master: Master, agent: SimAgent, victim: JobId, *, saves: bool) -> JobId:
    """A short job of root's takes its GPUs at the next boundary, and ends."""
    winner = submit(master, SHORT, caller=ROOT)
    key = master.attempt(victim).key
    for _ in range(40):
        go_on(master, [agent], 10.0)
        if agent.ranks[key].noticed:
            break
    if saves:
        agent.save(key, 7, save_s=3.0)
    agent.exit(key, 99 if saves else 1)
    agent.report()
    go_on(master, [agent], 2.0)
    assert master.attempt(winner).state == "running", master.story()
    there = master.attempt(winner).key
    agent.exit(there)
    agent.report()
    go_on(master, [agent], 2.0)
    return winner


def preempted(master: Master, agent: SimAgent, *, saves: bool) -> tuple[JobId, JobId]:
    """Who has run for a minute, and for whom it had to leave."""
    victim = submit(master, LONG)
    go_on(master, [agent], 60.0)
    return victim, preempt(master, agent, victim, saves=saves)


def test_the_victim_is_told_by_whom_by_which_rule_and_what_it_lost(
    srtf: Master, node: SimAgent
) -> None:
    victim, winner = preempted(srtf, node, saves=False)
    told = {event.kind: event for event in srtf.events(victim)}
    assert told["attempt_stop_requested"].cause == "outranked: the shortest remaining time first"
    ends = told["job_requeued"]
    lost_s = round(float(str(ends.data["lost_s"])))
    assert lost_s > 60
    assert ends.cause == (
        f"preempted by job {winner} (root) by rule: the shortest remaining time first; "
        f"lost up to {lost_s} s of work"
    )
    assert (ends.data["for_job"], ends.data["user"]) == (winner, "root")


def test_a_job_that_was_preempted_as_often_as_may_be_is_left_alone_also_after_a_restart(
    srtf: Master, node: SimAgent
) -> None:
    victim, winner = preempted(srtf, node, saves=True)
    before = srtf.job(victim)
    assert (before.displaced, before.taken is not None) == (1, True)
    node.cut()
    srtf.restart()
    node.hello()
    assert srtf.job(victim).taken == before.taken
    assert srtf.job(victim).displaced == 1
    late = submit(srtf, SHORT)
    go_on(srtf, [node], 330.0)
    assert srtf.attempt(victim).stop_cause is None, srtf.story(victim)
    reasons = {reason.code.value: reason for reason in srtf.why(late).reasons}
    assert reasons["protected"].blocking_jobs == (victim,)
    assert winner not in reasons["protected"].blocking_jobs


def test_what_going_on_takes_is_measured_once_for_each_start_that_resumes(
    srtf: Master, node: SimAgent
) -> None:
    victim = submit(srtf, LONG)
    go_on(srtf, [node], 20.0)
    beat(node, AttemptKey(victim, 1))
    assert srtf.job(victim).resumes == (), "it went on with nothing"
    preempt(srtf, node, victim, saves=True)
    again = srtf.attempt(victim)
    assert again.resume_from is not None
    go_on(srtf, [node], 20.0)
    srtf.clock.advance(5.0)
    beat(node, again.key, age_s=4.0)
    measured = srtf.clock.now_s() - 4.0 - again.assigned_time_s
    assert srtf.job(victim).resumes == (round(measured, 3),)
    srtf.clock.advance(5.0)
    beat(node, again.key)
    assert len(srtf.job(victim).resumes) == 1
    cost_s = pause_and_resume_s(srtf.state.cluster, srtf.job(victim))
    assert cost_s == 3.0 + round(measured, 3)
    node.cut()
    srtf.restart()
    node.hello()
    assert pause_and_resume_s(srtf.state.cluster, srtf.job(victim)) == cost_s
    srtf.clock.advance(5.0)
    beat(node, again.key)
    assert len(srtf.job(victim).resumes) == 1, (
        "an earlier beat may have been heard by another master"
    )


def test_before_anything_is_measured_the_configuration_says_what_a_stop_costs(
    srtf: Master, node: SimAgent
) -> None:
    job = srtf.job(submit(srtf, LONG))
    terms = Terms()
    assert pause_and_resume_s(srtf.state.cluster, job) == terms.save_lead_s + terms.resume_s
