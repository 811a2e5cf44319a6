"""A node whose disk is full: nothing new is placed there, and no job is blamed for it."""

from dlq_master.control.stimuli import Heartbeat, ToldDisk
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import Master
from support.sim_agent import SimAgent

GIB = 1 << 30
NODE = NodeId("gpu01")


def tell(agent: SimAgent, *, full: bool, free_bytes: int = 100 << 20) -> None:
    assert agent.session_id is not None
    told = ToldDisk(full, free_bytes, GIB)
    agent.master.turn(Heartbeat(node_id=agent.node_id, session_id=agent.session_id, disk=told))


def test_nothing_new_is_placed_on_a_node_whose_disk_is_full_until_it_has_room(
    master: Master, agent: SimAgent
) -> None:
    tell(agent, full=True)
    note = master.node(NODE).note(NodeFlag.DISK_FULL)
    assert note is not None
    assert note.reason == "100MiB are free where its agent keeps its state, which wants 1GiB"
    assert note.by == "node:gpu01"
    job_id = master.submit().job_id
    assert master.job(job_id).live_attempt is None
    (reason,) = [one for one in master.why(job_id).reasons if one.code.value == "nodes_closed"]
    assert reason.detail == "gpu01 (disk_full)"
    version = master.node(NODE).version
    tell(agent, full=True, free_bytes=0)
    assert master.node(NODE).version == version, "a repeat is no news"
    tell(agent, full=False, free_bytes=2 * GIB)
    assert master.node(NODE).flags == frozenset()
    assert master.job(job_id).live_attempt == 1


def test_what_runs_there_goes_on(master: Master, agent: SimAgent) -> None:
    job_id = master.submit().job_id
    agent.obey()
    agent.start(AttemptKey(job_id, 1))
    agent.report()
    tell(agent, full=True)
    assert master.attempt(job_id).state is AttemptState.RUNNING


def test_the_flag_outlives_the_master(master: Master, agent: SimAgent) -> None:
    tell(agent, full=True)
    master.restart()
    assert master.node(NODE).flags == {NodeFlag.DISK_FULL}


def test_a_start_that_fails_for_a_full_disk_is_neither_poison_nor_the_nodes_fault(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit().job_id
    for number in range(1, 6):
        agent.obey()
        agent.fail_start(AttemptKey(job_id, number), "no space left on device", no_room=True)
        agent.report()
        for _ in range(40):
            master.tick(10.0)
            agent.heartbeat()
    job = master.job(job_id)
    assert (job.infra_failures, job.hold_reason) == (0, "")
    assert master.ended(job_id, 5).state == "start_failed"
    assert NODE not in master.state.nodes.failures.failures


def test_starts_that_fail_for_something_else_still_count(master: Master, agent: SimAgent) -> None:
    job_id = master.submit().job_id
    agent.obey()
    agent.fail_start(AttemptKey(job_id, 1))
    agent.report()
    assert master.job(job_id).infra_failures == 1
    assert NODE in master.state.nodes.failures.failures
