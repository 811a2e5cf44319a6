"""A group that lost a node keeps the GPUs of all members, whoever restarts or is silent."""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import CancelJob, HoldJob
from dlq_master.model.ids import JobId, NodeId
from support.master_harness import Master, config_of
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.jobs.test_control_groups import (
    ACTOR,
    key_of,
    spread_word,
    states,
    submitted,
)
from unit.master.control.jobs.test_control_kept_gpus import codes, lose
from unit.master.control.nodes.test_control_nodes import silence

Agents = dict[str, SimAgent]
LEARNER = ("learner", 8, ACTOR[2])


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(config_of("dlq"))


def lost(master: Master) -> tuple[Agents, JobId, JobId, JobId]:
    """A learner on two nodes of which one is lost, an actor that was told to leave, and a job on
    the fourth node. Each node has four GPUs.
    """
    agents = {name: SimAgent(master, NodeId(name)) for name in ("n1", "n2", "n3", "n4")}
    for agent in agents.values():
        agent.hello()
    learner, actor = submitted(master, LEARNER, ACTOR)
    for job_id in (learner, actor):
        for rank, status in enumerate(master.attempt(job_id).ranks):
            agents[status.node_id].obey()
            agents[status.node_id].ready(key_of(master, job_id), 20_001 + 10 * job_id + rank)
    spread_word(*agents.values())
    busy = {it.node_id for job_id in (learner, actor) for it in master.attempt(job_id).ranks}
    (free,) = {*agents} - busy
    other = running(master, agents[free])
    name = master.attempt(learner).ranks[1].node_id
    lose(master, agents, key_of(master, learner), name)
    assert states(master, learner, actor) == ["queued", "pausing"]
    return agents, learner, actor, other.job_id


def leave(master: Master, agents: Agents, actor: JobId) -> None:
    """The actor has saved."""
    agent = next(it for it in agents.values() if key_of(master, actor) in it.living())
    agent.exit(key_of(master, actor), 99)
    agent.report()


def on(master: Master, job_id: JobId) -> tuple[str, ...]:
    return tuple(map(str, master.attempt(job_id).lease.allocation.node_ids))


def finish(master: Master, agents: Agents, job_id: JobId) -> None:
    (name,) = on(master, job_id)
    agents[name].exit(key_of(master, job_id), 0)
    agents[name].report()


def test_all_members_wait_with_their_gpus_and_start_with_the_first_spare_node(
    master: Master,
) -> None:
    agents, learner, actor, other = lost(master)
    late = [master.submit(4).job_id for _ in range(2)]
    leave(master, agents, actor)
    assert states(master, learner, actor, *late) == ["queued"] * 4
    assert codes(master, actor)[0] == codes(master, learner)[0] == "kept_gpus"
    assert master.loop.published.wait_code(master.job(actor), 0.0) == "kept_gpus"
    finish(master, agents, other)
    assert [master.job(it).live_attempt for it in (learner, actor)] == [2, 2]
    assert states(master, *late) == ["queued"] * 2


def test_a_restart_of_the_master_and_of_agents_changes_nothing(master: Master) -> None:
    agents, learner, actor, other = lost(master)
    kept = master.job(learner).kept
    master.restart()
    for agent in agents.values():
        agent.restart()
        agent.hello()
    late = master.submit(4).job_id
    leave(master, agents, actor)
    assert master.job(learner).kept == kept
    assert kept is not None
    assert master.job(actor).kept is not None
    assert master.job(actor).kept.until_s == kept.until_s  # type: ignore[union-attr]
    master.restart()
    for agent in agents.values():
        agent.hello()
    assert states(master, late) == ["queued"]
    finish(master, agents, other)
    assert [master.job(it).live_attempt for it in (learner, actor)] == [2, 2]


def test_a_silent_node_is_kept_for_nobody_until_it_answers(master: Master) -> None:
    agents, learner, actor, _ = lost(master)
    (quiet,) = on(master, actor)
    leave(master, agents, actor)
    assert master.why(actor).reasons[0].have == 4.0
    silence(master, 30.0, *[it for name, it in agents.items() if name != quiet])
    assert "kept_gpus" not in codes(master, actor)
    assert "kept_gpus" in codes(master, learner)
    agents[quiet].cut()
    agents[quiet].hello()
    assert master.why(actor).reasons[0].have == 4.0


def test_what_is_kept_is_given_back_when_its_time_is_over(master: Master) -> None:
    agents, _, actor, _ = lost(master)
    late = [master.submit(4).job_id for _ in range(2)]
    silence(master, 100.0, *agents.values())
    leave(master, agents, actor)
    silence(master, 198.0, *agents.values())
    assert states(master, *late) == ["queued"] * 2
    silence(master, 3.0, *agents.values())
    assert [master.job(it).live_attempt for it in late] == [1, 1]


@pytest.mark.parametrize("edit", [CancelJob, HoldJob])
def test_a_cancel_or_a_hold_of_one_member_gives_back_all(master: Master, edit: type) -> None:
    agents, _, actor, _ = lost(master)
    leave(master, agents, actor)
    late = [master.submit(4).job_id for _ in range(2)]
    assert states(master, *late) == ["queued"] * 2
    master.edit(edit, actor)
    master.tick(1.0)
    assert [master.job(it).live_attempt for it in late] == [1, 1]
