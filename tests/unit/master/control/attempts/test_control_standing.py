"""What should run on a node: one answer, for welcomes, commands, reports and heartbeats."""

from dataclasses import replace
from typing import Any

import pytest

from dlq_master.control.attempts.ranks import RankRole, role_of
from dlq_master.control.stimuli import FenceNode, ForgetNode, ReportedPhase
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import RunRules
from support.master_harness import ROOT, Master
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import silence


def standing(master: Master, key: AttemptKey, node: str = "gpu01", **other: Any) -> object:
    """Of rank 0 as it was placed, or with another fence."""
    fence = {"epoch": master.state.epoch, "rank": 0, **other}
    return role_of(master.state.cluster, NodeId(node), key, **fence)


def test_a_rank_stands_as_its_attempt_and_its_own_end_say(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    assert standing(master, key) is RankRole.RUNS
    assert standing(master, key, "gpu02", rank=1) is RankRole.RUNS
    master.cancel(key.job_id)
    assert standing(master, key) is RankRole.LEAVES
    agent.obey()
    agent.exit(key, 143)
    agent.report()
    assert standing(master, key) is RankRole.GONE
    other.obey()
    other.exit(key, 143)
    other.report()
    assert standing(master, key) is None


@pytest.mark.parametrize(
    "other", [{"node": "gpu02"}, {"epoch": 99}, {"rank": 1}, {"rank": -1}], ids=str
)
def test_what_has_another_fence_or_place_was_never_placed(
    master: Master, agent: SimAgent, other: dict[str, Any]
) -> None:
    key = running(master, agent)
    assert standing(master, key, **other) is None


def test_a_rank_that_runs_although_it_was_given_away_is_found_by_its_heartbeat(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    """A whole host was frozen for longer than the job's hold, and its line never broke."""
    job_id = master.submit(4, rules=RunRules(hold_s=120.0)).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    silence(master, 126.0, other)
    assert master.job(job_id).live_attempt == 2
    session = agent.session_id
    agent.heartbeat()

    assert (agent.node_id, session) in master.wires.closed
    assert "node_out_of_step" in master.words()
    agent.hello()
    assert agent.ranks[key].kill
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    agent.heartbeat()
    assert master.words().count("node_out_of_step") == 1, "it is known by now"
    agent.exit(key, 137)
    agent.report()
    assert master.node("gpu01").strayed == frozenset()


def test_a_lost_rank_of_a_gang_that_still_ends_elsewhere_is_stopped_when_its_node_is_back(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    silence(master, 21.0, other)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="off"))
    assert master.attempt(key.job_id).key == key, "its other rank has not ended yet"
    agent.hello()
    agent.obey()
    assert agent.ranks[key].kill, "it was not off after all"
    other.obey()
    other.exit(key, 137)
    other.report()
    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    agent.exit(key, 137)
    agent.report()
    assert master.job(key.job_id).live_attempt == 2


def test_a_rank_by_the_same_name_of_another_fence_is_not_the_one_that_ran(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    rank = agent.ranks[key]
    rank.launch = replace(rank.launch, epoch=rank.launch.epoch + 40)
    agent.hello()
    assert master.attempt(key.job_id).state == "unknown"  # what it has is no word on what it had
    assert rank.phase is ReportedPhase.STOPPING


def test_a_heartbeat_of_what_should_run_closes_nothing(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    for _ in range(3):
        agent.heartbeat()
        other.heartbeat()
        master.tick(5.0)
    master.cancel(key.job_id)
    agent.heartbeat()
    other.heartbeat()
    assert master.wires.closed == []


def test_a_forgotten_node_leaves_nothing_behind(master: Master, agent: SimAgent) -> None:
    silence(master, 21.0)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="sold"))
    master.ask(ForgetNode(caller=ROOT, request_id="", node_id=agent.node_id))
    state = master.state
    kept = (
        state.nodes.contacts,
        state.nodes.unowned,
        state.nodes.unreleased,
        state.nodes.greeted,
        state.nodes.holds_sent,
    )
    assert not any(agent.node_id in each for each in kept)
