"""GPUs that take no work although their node does: orphans sit on them, or nobody has accepted
them.
"""

from dataclasses import replace

import pytest

from dlq_common.errors import NotFound
from dlq_master.control.stimuli import AcceptGpus, Opened, OpenSession
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Gpu, NodeFlag
from support.master_harness import ROOT, Master
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import masters_without


def accept(master: Master, node_id: str = "gpu01") -> None:
    """`dlq admin node accept`."""
    master.ask(AcceptGpus(caller=ROOT, request_id="", node_id=NodeId(node_id)))


def free(master: Master) -> int:
    """GPUs of gpu01 that may take work."""
    return master.loop.published.free_gpu_count(NodeId("gpu01"))


def orphaned(master: Master, agent: SimAgent, *, gpus: int = 1) -> tuple[Master, AttemptKey]:
    """A job runs whose master was restored from before it; the node has said hello to that one."""
    key = running(master, agent, gpus=gpus)
    lost = masters_without(master)
    agent.master = lost
    agent.hello()
    return lost, key


def test_an_orphan_keeps_its_own_gpus_and_no_others(master: Master, agent: SimAgent) -> None:
    lost, key = orphaned(master, agent)
    node = lost.node("gpu01")
    assert (node.flags, node.strayed) == (frozenset(), frozenset({0}))
    assert node.stray_reason == f"{key} runs unknown to this master, until somebody ends it there"
    beside = lost.submit(3).job_id
    assert lost.attempt(beside).lease.allocation.slots[0].gpu_indices == (1, 2, 3)
    agent.obey()
    assert key in agent.living(), "it is left alone"
    lost.close()


def test_a_job_that_needs_the_orphans_gpus_is_told_where_they_are(
    master: Master, agent: SimAgent
) -> None:
    lost, key = orphaned(master, agent)
    whole = lost.submit(4).job_id
    reason = lost.why(whole).reasons[0]
    assert (reason.code, reason.detail) == ("nodes_closed", "gpu01")
    agent.exit(key)
    agent.report()
    assert lost.job(whole).live_attempt == 1
    lost.close()


def test_it_stays_so_through_restarts_of_both(master: Master, agent: SimAgent) -> None:
    lost, key = orphaned(master, agent)
    lost.restart()
    assert lost.node("gpu01").strayed == {0}, "before the node has said hello again"
    agent.restart()
    agent.hello()
    assert lost.node("gpu01").strayed == {0}
    agent.cut()
    agent.exit(key)
    agent.hello()
    assert (lost.node("gpu01").strayed, free(lost)) == (frozenset(), 4)
    lost.close()


def test_without_its_devices_the_whole_node_waits(master: Master, agent: SimAgent) -> None:
    agent.tells_gpus = False
    lost, key = orphaned(master, agent)
    node = lost.node("gpu01")
    assert (node.flags, node.strayed) == (frozenset({NodeFlag.CLEANING}), frozenset())
    assert node.flag_reason.startswith(f"{key} runs unknown to this master")
    agent.exit(key)
    agent.report()
    assert lost.node("gpu01").flags == frozenset()
    lost.close()


def test_gpus_that_a_node_shows_later_wait_for_a_word(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    agent.cut()
    agent.gpus = 6
    agent.hello()
    assert master.attempt(key.job_id).state == "running", "the others go on as before"
    assert (master.node("gpu01").unaccepted, free(master)) == (frozenset({4, 5}), 0)
    waiting = master.submit(2).job_id
    assert master.job(waiting).live_attempt is None
    (told,) = [event for event in master.events() if event.kind == "node_gpus_withheld"]
    assert told.cause == "2 x H100 (4, 5): not among those it was accepted with"
    accept(master)
    accept(master)
    assert master.attempt(waiting).lease.allocation.slots[0].gpu_indices == (4, 5)
    assert master.words().count("node_gpus_accepted") == 1


@pytest.mark.parametrize("restart", [False, True])
def test_saying_it_again_accepts_nothing(master: Master, agent: SimAgent, restart: bool) -> None:
    agent.gpus = 6
    agent.hello()
    if restart:
        master.restart()
        assert free(master) == 4
    agent.hello()
    assert (master.node("gpu01").unaccepted, free(master)) == (frozenset({4, 5}), 4)
    assert master.words().count("node_gpus_withheld") == 1


def test_a_gpu_that_was_away_comes_back_without_a_word(master: Master, agent: SimAgent) -> None:
    agent.gpus = 3
    agent.hello()
    agent.gpus = 4
    agent.hello()
    assert free(master) == 4


def hello_with(agent: SimAgent, *gpus: Gpu) -> None:
    """The agent shows these."""
    opening = OpenSession(
        node_id=agent.node_id,
        facts=replace(agent.facts(), gpus=gpus),
        highest_epoch=0,
        reports=(),
    )
    assert isinstance(agent.master.ask(opening), Opened)


def test_another_type_in_the_same_place_is_a_new_gpu_and_a_spare_part_is_not(
    master: Master, agent: SimAgent
) -> None:
    spare = Gpu(index=1, gpu_type="H100", uuid="GPU-other")
    hello_with(agent, Gpu(index=0, gpu_type="B200"), spare)
    assert master.node("gpu01").unaccepted == {0}
    assert free(master) == 1


def test_a_new_node_brings_its_gpus_along(master: Master, agent: SimAgent) -> None:
    assert (free(master), master.node("gpu01").unaccepted) == (4, frozenset())
    with pytest.raises(NotFound):
        accept(master, "gpu99")
