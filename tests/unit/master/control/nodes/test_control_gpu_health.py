"""What agents say of their GPUs, and what becomes of the GPUs, the node and its jobs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import InvalidRequest, NotFound
from dlq_master.control.config import HealthConfig, MasterConfig
from dlq_master.control.stimuli import (
    ClearGpuConditions,
    Heartbeat,
    SetNodeFlags,
    ToldGpu,
    ToldSymptom,
)
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import silence


def tell(agent: SimAgent, *symptoms: str, gpu: int = 1, age_s: float = 0.0) -> None:
    """A heartbeat with the whole health of the node: one GPU has these symptoms, the others
    none.
    """
    assert agent.session_id is not None
    told = tuple(
        ToldGpu(
            index,
            tuple(ToldSymptom(code, age_s, "words") for code in symptoms) if index == gpu else (),
            temperature_celsius=40 + index,
        )
        for index in range(agent.gpus)
    )
    agent.master.turn(Heartbeat(node_id=agent.node_id, session_id=agent.session_id, health=told))


def clear(master: Master, *indexes: int, node: str = "gpu01") -> None:
    ask = ClearGpuConditions(
        caller=ROOT, request_id="", node_id=NodeId(node), indexes=frozenset(indexes)
    )
    master.ask(ask)


def free(master: Master, node: str = "gpu01") -> int:
    return master.loop.published.free_gpu_count(NodeId(node))


def set_flags(master: Master, flag: NodeFlag, *, on: bool, node: str = "gpu01") -> None:
    flags = frozenset({flag})
    master.ask(
        SetNodeFlags(
            caller=ROOT,
            request_id="",
            node_id=NodeId(node),
            set_flags=flags if on else frozenset(),
            clear_flags=frozenset() if on else flags,
            reason="words" if on else "",
        )
    )


def test_a_gpu_that_needs_a_reset_takes_no_new_work_and_the_others_do(
    master: Master, agent: SimAgent
) -> None:
    tell(agent, "xid_48")
    assert (master.node("gpu01").flags, master.node("gpu01").ailing) == (
        frozenset(),
        frozenset({1}),
    )
    assert free(master) == 3
    job = master.submit(3).job_id
    assert master.attempt(job).lease.allocation.slots[0].gpu_indices == (0, 2, 3)


def test_what_runs_on_it_goes_on(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    tell(agent, "xid_48")
    assert master.attempt(key.job_id).state == "running"
    assert master.attempt(key.job_id).stop_cause is None


def test_a_job_that_needs_all_gpus_is_told_which_node_lacks_one(
    master: Master, agent: SimAgent
) -> None:
    tell(agent, "xid_48")
    reason = master.why(master.submit(4).job_id).reasons[0]
    assert (reason.code, reason.detail) == ("nodes_closed", "gpu01")


def test_a_symptom_that_is_only_watched_changes_nothing(master: Master, agent: SimAgent) -> None:
    tell(agent, "xid_63", "thermal_slowdown")
    assert free(master) == 4
    assert {it.code for it in master.node("gpu01").conditions} == {"xid_63", "thermal_slowdown"}


def test_each_change_is_journaled_once_and_repeats_are_not(master: Master, agent: SimAgent) -> None:
    for _ in range(3):
        tell(agent, "xid_48")
    tell(agent, "xid_48", "thermal_slowdown")
    told = [event for event in master.events() if event.kind == "node_gpus_judged"]
    assert [event.cause for event in told] == [
        "GPU 1: xid_48 (words), reset",
        "GPU 1: thermal_slowdown (words), monitor",
    ]
    assert {event.actor for event in told} == {"node:gpu01"}


def test_only_a_boot_or_an_operator_gives_it_back(master: Master, agent: SimAgent) -> None:
    tell(agent, "xid_48")
    tell(agent)
    assert free(master) == 3
    agent.restart()
    agent.hello()
    tell(agent)
    assert free(master) == 3, "the agent has restarted, not the host"
    agent.reboot()
    agent.hello()
    tell(agent)
    assert free(master) == 4


def test_a_masters_restart_forgets_nothing(master: Master, agent: SimAgent) -> None:
    tell(agent, "xid_48")
    master.restart()
    assert free(master) == 3
    agent.cut()
    agent.hello()
    assert free(master) == 3


def test_silence_changes_nothing_about_it(master: Master, agent: SimAgent) -> None:
    tell(agent, "xid_48")
    silence(master, 100.0)
    agent.heartbeat()
    assert free(master) == 3


def test_an_operator_takes_it_for_healthy_and_an_old_message_does_not_count_again(
    master: Master, agent: SimAgent
) -> None:
    tell(agent, "xid_48")
    master.clock.advance(100.0)
    clear(master, 1)
    assert free(master) == 4
    agent.restart()
    agent.hello()
    tell(agent, "xid_48", age_s=100.0)  # read from the kernel's log again
    assert free(master) == 4
    master.clock.advance(1.0)
    tell(agent, "xid_48")  # a new one
    assert free(master) == 3


def test_clearing_is_refused_for_gpus_and_nodes_that_are_not_there(
    master: Master, agent: SimAgent
) -> None:
    with pytest.raises(InvalidRequest, match="no GPU 9"):
        clear(master, 9)
    with pytest.raises(NotFound):
        clear(master, node="nowhere")


def test_a_card_off_the_bus_drains_its_node_and_its_jobs_go_elsewhere(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    tell(agent, "xid_79", gpu=2)
    node = master.node("gpu01")
    note = node.note(NodeFlag.DRAINING)
    assert note is not None
    assert (note.reason, note.by) == ("GPU 2: xid_79 (words)", "master")
    assert master.attempt(key.job_id).stop_cause == "drain"
    assert master.node("gpu02").open


def test_undraining_leaves_the_bad_gpu_out_until_that_is_cleared_too(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    tell(agent, "xid_79")
    set_flags(master, NodeFlag.DRAINING, on=False)
    tell(agent, "xid_79")
    assert (master.node("gpu01").flags, free(master)) == (frozenset(), 3)
    clear(master)
    assert free(master) == 4


def test_the_last_open_node_is_never_drained_by_the_master_itself(
    master: Master, agent: SimAgent
) -> None:
    tell(agent, "xid_79")
    assert master.node("gpu01").flags == frozenset()
    assert free(master) == 3
    (told,) = [event for event in master.events() if event.kind == "node_not_drained"]
    assert "enough nodes are closed already" in told.cause


def test_a_driver_that_goes_mad_everywhere_closes_a_share_of_the_cluster_only(
    master: Master,
) -> None:
    agents = [SimAgent(master, NodeId(f"n{number}")) for number in range(8)]
    for agent in agents:
        agent.hello()
    for agent in agents:
        tell(agent, "xid_79")
    drained = [agent for agent in agents if master.node(agent.node_id).flags]
    assert len(drained) == 2  # a quarter of eight
    assert all(free(master, agent.node_id) == 3 for agent in agents)


def test_own_words_of_the_operator_win(masters: Callable[[MasterConfig], Master]) -> None:
    config = replace(config_of(), health=HealthConfig(actions={"xid_48": "none"}))
    master = masters(config)
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    tell(agent, "xid_48")
    assert (master.node("gpu01").conditions, free(master)) == ((), 4)


def test_the_last_figures_are_shown_and_never_stored(master: Master, agent: SimAgent) -> None:
    tell(agent)
    shown = master.loop.published.figures(NodeId("gpu01"))
    assert shown[2].temperature_celsius == 42
    master.restart()
    assert master.loop.published.figures(NodeId("gpu01")) == {}


def test_a_node_that_does_not_get_clean_is_left_to_an_operator(
    masters: Callable[[MasterConfig], Master],
) -> None:
    config = replace(config_of(), health=HealthConfig(cleaning_limit=Seconds(600.0)))
    master = masters(config)
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    key = running(master, agent)
    agent.cling(key, "gpu_not_released: GPU-0: 4096 bytes used, processes: 17")
    agent.report()
    since = master.node("gpu01").note(NodeFlag.CLEANING)
    assert since is not None
    assert since.since_s == master.clock.now_s()
    silence(master, 590.0, agent)
    assert master.node("gpu01").flags == {NodeFlag.CLEANING}
    master.restart()
    agent.cut()
    agent.hello()
    silence(master, 30.0, agent)
    note = master.node("gpu01").note(NodeFlag.CORDONED)
    assert note is not None
    assert note.reason.startswith("not clean after 10 min: ")
    agent.exit(key)
    agent.report()
    assert master.node("gpu01").flags == {NodeFlag.CORDONED}, "an operator has to say so"
    set_flags(master, NodeFlag.CORDONED, on=False)
    assert master.node("gpu01").open


def test_who_set_which_flag_and_when_is_kept_for_each(master: Master, agent: SimAgent) -> None:
    set_flags(master, NodeFlag.CORDONED, on=True)
    master.clock.advance(60.0)
    set_flags(master, NodeFlag.DRAINING, on=True)
    notes = {note.flag: note for note in master.node("gpu01").notes}
    assert notes[NodeFlag.CORDONED].since_s + 60.0 == notes[NodeFlag.DRAINING].since_s
    assert notes[NodeFlag.CORDONED].by == "user:root"
    set_flags(master, NodeFlag.DRAINING, on=False)
    assert master.node("gpu01").flag_reason == "words"
    set_flags(master, NodeFlag.CORDONED, on=False)
    assert (master.node("gpu01").notes, master.node("gpu01").flag_reason) == ((), "")
