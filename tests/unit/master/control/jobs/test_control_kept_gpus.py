"""A gang that lost a node keeps its other GPUs, whoever restarts or is silent meanwhile."""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import CancelJob, SetNodeFlags
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import silence

NAMES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(config_of("dlq"))


def at_work(master: Master) -> tuple[dict[str, SimAgent], AttemptKey, AttemptKey]:
    """A gang on n1, n2 and n3, and a job on n4."""
    agents = {name: SimAgent(master, NodeId(name)) for name in NAMES}
    for agent in agents.values():
        agent.hello()
    gang = running(master, *[agents[name] for name in NAMES[:3]])
    other = running(master, agents["n4"])
    return agents, gang, other


def lose(master: Master, agents: dict[str, SimAgent], gang: AttemptKey, name: str) -> None:
    """The node starts again, and the other ranks are ended."""
    flags = SetNodeFlags(
        caller=ROOT,
        request_id="off",
        node_id=NodeId(name),
        set_flags=frozenset({NodeFlag.CORDONED}),
        clear_flags=frozenset(),
        reason="off",
    )
    master.ask(flags)
    agents[name].reboot()
    agents[name].hello()
    for agent in agents.values():
        agent.obey()
        if gang in agent.living():
            agent.exit(gang, 137)
        agent.report()
    assert master.job(gang.job_id).live_attempt is None


def codes(master: Master, job_id: int) -> list[str]:
    return [reason.code.value for reason in master.why(job_id).reasons]  # type: ignore[arg-type]


def on(master: Master, key: AttemptKey) -> tuple[str, ...]:
    return tuple(map(str, master.attempt(key.job_id).lease.allocation.node_ids))


def test_it_waits_for_a_spare_with_its_gpus_and_gets_the_first_that_is_free(
    master: Master,
) -> None:
    agents, gang, other = at_work(master)
    lose(master, agents, gang, "n2")
    late = master.submit(4).job_id
    assert master.job(late).live_attempt is None
    assert codes(master, gang.job_id)[0] == "kept_gpus"
    assert "kept_gpus" in codes(master, late)
    assert master.loop.published.wait_code(master.job(gang.job_id), 0.0) == "kept_gpus"
    assert master.loop.published.wait_code(master.job(late), 0.0) == "kept_gpus"

    agents["n4"].exit(other, 0)
    agents["n4"].report()
    assert on(master, gang) == ("n1", "n4", "n3")
    (assigned,) = [it for it in master.events() if it.kind == "attempt_assigned"][-1:]
    assert assigned.cause == "kept_gpus: on n1, n3; n4 is new"
    (queued,) = [it for it in master.events() if it.kind == "job_requeued"]
    assert queued.data["had"] == "n1:0+1+2+3,n2:0+1+2+3,n3:0+1+2+3"


def test_a_restart_of_the_master_and_of_agents_changes_nothing(master: Master) -> None:
    agents, gang, other = at_work(master)
    lose(master, agents, gang, "n2")
    kept = master.job(gang.job_id).kept
    master.restart()
    for agent in agents.values():
        agent.restart()
        agent.hello()
    assert master.job(gang.job_id).kept == kept
    late = master.submit(4).job_id
    assert master.job(late).live_attempt is None
    agents["n4"].exit(other, 0)
    agents["n4"].report()
    assert on(master, gang) == ("n1", "n4", "n3")
    assert master.attempt(gang.job_id).key.number == 2


def test_a_silent_node_is_kept_for_nobody_and_comes_back_to_its_gang(master: Master) -> None:
    agents, gang, other = at_work(master)
    lose(master, agents, gang, "n2")
    silence(master, 30.0, agents["n2"], agents["n3"], agents["n4"])
    assert master.why(gang.job_id).reasons[0].have == 4.0
    agents["n1"].cut()
    agents["n1"].hello()
    assert master.why(gang.job_id).reasons[0].have == 8.0
    agents["n4"].exit(other, 0)
    agents["n4"].report()
    assert on(master, gang) == ("n1", "n4", "n3")


def test_the_claim_ends_with_its_time(master: Master) -> None:
    agents, gang, _ = at_work(master)
    lose(master, agents, gang, "n2")
    late = master.submit(4).job_id
    silence(master, 298.0, *agents.values())
    assert master.job(late).live_attempt is None
    silence(master, 3.0, *agents.values())
    assert master.job(late).live_attempt == 1


def test_the_claim_ends_with_its_job(master: Master) -> None:
    agents, gang, _ = at_work(master)
    lose(master, agents, gang, "n2")
    late = master.submit(4).job_id
    master.edit(CancelJob, gang.job_id)
    assert master.job(gang.job_id).kept is None
    assert master.job(late).live_attempt == 1
