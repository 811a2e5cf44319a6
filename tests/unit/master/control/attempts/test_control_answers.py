"""A report that a rank runs is the answer to its launch: one turn and one commit for both."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_master.control.stimuli import CommandDone, ReportedPhase, ReportedRank
from dlq_master.model.ids import AttemptKey
from support.master_harness import Master
from support.sim_agent import SimAgent


def launched(master: Master, agent: SimAgent) -> ReportedRank:
    """A job whose launch is under way; the report that its rank runs."""
    key = AttemptKey(master.submit(1).job_id, 1)
    epoch = master.attempt(key.job_id).epoch
    return ReportedRank(sequence=7, key=key, epoch=epoch, node_rank=0, phase=ReportedPhase.STARTED)


def test_one_commit_takes_the_answer_and_the_report(master: Master, agent: SimAgent) -> None:
    report = launched(master, agent)
    (row,) = master.state.attempts.outbox
    before = master.store.commits
    agent.send([report])
    assert master.store.commits == before + 1
    assert master.attempt(report.key.job_id).state == "running"
    assert master.state.attempts.outbox == {}
    assert agent.session_id is not None
    # An agent of before says it beside the report: nothing is left to do.
    master.turn(CommandDone(node_id=agent.node_id, session_id=agent.session_id, sequence=row))
    assert master.store.commits == before + 1


def test_after_a_restart_the_launch_is_not_sent_again(master: Master, agent: SimAgent) -> None:
    agent.send([launched(master, agent)])
    master.restart()
    assert master.state.attempts.outbox == {}


@pytest.mark.parametrize("phase", [ReportedPhase.PREPARING, ReportedPhase.READY])
def test_a_rank_that_has_not_begun_answers_nothing(
    master: Master, agent: SimAgent, phase: ReportedPhase
) -> None:
    report = launched(master, agent)
    (row,) = master.state.attempts.outbox
    agent.send([replace(report, phase=phase)])
    assert row in master.state.attempts.outbox


@pytest.mark.parametrize("change", [{"epoch": 99}, {"node_rank": 1}], ids=str)
def test_a_report_with_another_fence_answers_nothing(
    master: Master, agent: SimAgent, change: dict[str, Any]
) -> None:
    report = launched(master, agent)
    (row,) = master.state.attempts.outbox
    agent.send([replace(report, **change)])
    assert row in master.state.attempts.outbox


def test_another_node_answers_nothing(master: Master, agent: SimAgent, other: SimAgent) -> None:
    report = launched(master, agent)
    (row,) = master.state.attempts.outbox.values()
    stranger = other if row.node_id == agent.node_id else agent
    stranger.send([report])
    assert row.sequence in master.state.attempts.outbox


def test_a_stop_of_the_rank_stays(master: Master, agent: SimAgent) -> None:
    report = launched(master, agent)
    master.cancel(report.key.job_id)
    agent.send([report])
    assert [row.kind for row in master.state.attempts.outbox.values()] == ["stop"]
