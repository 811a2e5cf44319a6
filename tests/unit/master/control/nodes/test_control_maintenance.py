"""An agent announces that it will be away: its jobs hold out longer, and the master waits
longer.
"""

from dataclasses import replace

import pytest

from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_master.control.stimuli import AnnounceMaintenance, Caller, Heartbeat, Maintenance
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import Master, config_of
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import HOLD_S, silence

TWO_HOURS_S = 7200.0


def announce(agent: SimAgent, seconds: float, request_id: str = "m") -> Maintenance:
    """What `dlq-nodeagent maintenance` asks."""
    return agent.master.ask(  # type: ignore[no-any-return] # as its stimulus says
        AnnounceMaintenance(
            caller=Caller(agent.node_id, "node"),
            request_id=request_id,
            node_id=agent.node_id,
            maintenance_s=seconds,
        )
    )


def away(agent: SimAgent, seconds: float = TWO_HOURS_S) -> None:
    """It has announced, its shims know, and it is gone."""
    announce(agent, seconds)
    agent.heartbeat()
    agent.heartbeat()
    agent.cut()


def test_the_answer_says_until_when_and_when_the_ranks_know(
    master: Master, agent: SimAgent
) -> None:
    running(master, agent)
    asked = announce(agent, TWO_HOURS_S)
    assert asked == Maintenance(
        left_s=TWO_HOURS_S, in_force=False, rank_count=1, hold_s=HOLD_S + TWO_HOURS_S
    )
    agent.heartbeat()  # its answer brings the word
    assert not announce(agent, TWO_HOURS_S).in_force
    agent.heartbeat()  # and this one says that all shims have it
    assert announce(agent, TWO_HOURS_S).in_force
    assert master.words().count("node_maintenance_announced") == 1, "a repeat changes nothing"


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_outlives_an_announced_absence_longer_than_its_hold(
    master: Master, agent: SimAgent, other: SimAgent, restart: bool
) -> None:
    key = running(master, agent)
    away(agent)
    if restart:
        master.restart()
        other.hello()
    silence(master, TWO_HOURS_S - 60.0, other)
    agent.guard()
    assert agent.living() == [key]
    assert master.attempt(key.job_id).state == "unknown"
    agent.hello()

    assert master.attempt(key.job_id).state == "running", master.story()
    assert "attempt_node_lost" not in master.words()


def test_the_shims_give_up_before_the_master_gives_the_gpus_away(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    away(agent)
    silence(master, HOLD_S + TWO_HOURS_S + 4.0, other)
    agent.guard()
    assert agent.living() == []
    assert master.attempt(key.job_id).key == key
    silence(master, 1.0, other)
    assert master.job(key.job_id).live_attempt == 2


def test_it_ends_by_itself_but_the_master_waits_until_the_shims_know(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    away(agent, 600.0)
    silence(master, 660.0, other)
    node = master.node("gpu01")
    assert (node.flags, node.maintenance_end_s) == (frozenset(), None)
    assert node.hold_extension_s == 600.0, "its shims have not heard of it"
    silence(master, HOLD_S - 100.0, other)
    assert master.attempt(key.job_id).key == key
    agent.hello()

    assert master.node("gpu01").hold_extension_s == 0.0
    assert agent.hold_extension_s == 0.0


def test_an_agent_that_restarts_meanwhile_is_told_again(master: Master, agent: SimAgent) -> None:
    running(master, agent)
    away(agent)
    agent.hold_revision, agent.hold_extension_s = 0, 0.0
    agent.restart()
    opened = agent.hello()

    assert (opened.hold_extension_s, agent.hold_extension_s) == (TWO_HOURS_S, TWO_HOURS_S)
    assert master.node("gpu01").flags == {NodeFlag.MAINTENANCE}


def test_its_agent_may_end_it_early(master: Master, agent: SimAgent) -> None:
    running(master, agent)
    away(agent)
    agent.hello()
    assert announce(agent, 0.0, "end").left_s == 0.0
    assert master.node("gpu01").flags == frozenset()
    assert master.node("gpu01").hold_extension_s == TWO_HOURS_S
    agent.heartbeat()
    agent.heartbeat()
    assert master.node("gpu01").hold_extension_s == 0.0


def test_a_heartbeat_from_before_the_last_word_shortens_nothing(
    master: Master, agent: SimAgent
) -> None:
    """Announced and taken back within one round trip: a shim may still get the longer hold."""
    announce(agent, TWO_HOURS_S)
    announce(agent, 0.0, "end")
    assert agent.session_id is not None
    late = Heartbeat(node_id=agent.node_id, session_id=agent.session_id, hold_revision=1)
    master.turn(replace(late, hold_revision=0), late)
    assert master.node("gpu01").hold_extension_s == TWO_HOURS_S
    master.turn(replace(late, hold_revision=2))
    assert master.node("gpu01").hold_extension_s == 0.0


def test_a_longer_one_takes_the_place_of_a_shorter_one(master: Master, agent: SimAgent) -> None:
    announce(agent, 600.0)
    master.clock.advance(500.0)
    assert announce(agent, TWO_HOURS_S, "again").left_s == TWO_HOURS_S
    master.tick(200.0)
    assert master.node("gpu01").flags == {NodeFlag.MAINTENANCE}


def test_a_node_in_maintenance_takes_no_new_work(master: Master, agent: SimAgent) -> None:
    announce(agent, 600.0)
    job_id = master.submit().job_id
    assert master.why(job_id).reasons[0].code == "nodes_closed"
    master.tick(600.0)
    agent.heartbeat()
    assert master.job(job_id).live_attempt == 1


def test_an_absence_that_was_announced_is_no_reason_to_freeze(master: Master) -> None:
    agents = [SimAgent(master, node_id) for node_id in ("gpu01", "gpu02", "gpu03")]  # type: ignore[arg-type] # names
    for agent in agents:
        agent.hello()
        away(agent)
    silence(master, 60.0)
    assert {node.state for node in master.loop.published.nodes()} == {"unreachable"}
    assert "requeues_frozen" not in master.words()


def test_without_a_line_to_the_agent_it_is_refused(master: Master, agent: SimAgent) -> None:
    agent.cut()
    with pytest.raises(IllegalTransition, match="not connected"):
        announce(agent, 600.0)
    assert master.node("gpu01").flags == frozenset()


def test_more_than_the_cluster_allows_is_refused(master: Master, agent: SimAgent) -> None:
    longest_s = float(config_of().nodes.longest_maintenance)
    with pytest.raises(InvalidRequest, match=r"8h at most"):
        announce(agent, longest_s + 1.0)
    assert announce(agent, longest_s).left_s == longest_s
