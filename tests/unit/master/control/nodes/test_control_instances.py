"""Two agents with one certificate: which of them speaks for the node, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_common.errors import IllegalTransition
from dlq_master.control.nodes.state import MasterBoots
from dlq_master.control.stimuli.nodes import AgentInstance
from dlq_master.model.ids import NodeId
from support.extent import times
from support.master_harness import Master
from support.sim_agent import SimAgent

NODE = NodeId("gpu01")
STEPS = ("beat", "hello", "copy says hello", "pass", "master restarts", "agent restarts", "boot")


@dataclass
class Box:
    """A master and the agent of its own machine, and a copy of the disk in another machine."""

    master: Master
    boot: int = 1
    begun: int = 0
    agent: SimAgent = field(init=False)
    copy: SimAgent = field(init=False)

    def __post_init__(self) -> None:
        self.agent, self.copy = self.process(f"b{self.boot}"), self.process("c1")
        self._boots("", f"b{self.boot}")

    def process(self, boot: str, machine: str = "m1") -> SimAgent:
        """A new agent process, with the same disk."""
        self.begun += 1
        agent = SimAgent(self.master, NODE, boot_id=boot)
        agent.agent = AgentInstance(f"p{self.begun}", f"8:1:{boot}", "memory", machine)
        return agent

    def restart_master(self) -> None:
        self.master.restart()
        self._boots(f"b{self.boot}", f"b{self.boot}")

    def reboot(self) -> None:
        """Master and agent end with their kernel, and begin again."""
        before, self.boot = f"b{self.boot}", self.boot + 1
        self.master.restart()
        self._boots(before, f"b{self.boot}")
        self.agent = self.process(f"b{self.boot}")

    def _boots(self, former: str, present: str) -> None:
        self.master.state.nodes.instances.boots = MasterBoots(former, present)


@contextmanager
def a_box() -> Iterator[Box]:
    master = Master()
    yield Box(master)
    master.close()


@pytest.fixture
def box(master: Master) -> Box:
    return Box(master)


def test_after_a_boot_of_the_box_its_own_agent_is_taken_at_once(box: Box) -> None:
    box.agent.hello()
    box.reboot()
    box.agent.hello()
    assert box.agent.session_id is not None
    assert "node_instance_refused" not in box.master.words()


def test_a_copy_is_refused_also_while_the_box_boots(box: Box) -> None:
    box.agent.hello()
    for _ in range(2):
        with pytest.raises(IllegalTransition, match="another agent speaks for node gpu01"):
            box.copy.hello()
        box.reboot()


@pytest.mark.parametrize("machine", ["", "m2"])
def test_an_agent_of_another_or_an_unknown_machine_waits(box: Box, machine: str) -> None:
    box.agent.hello()
    box.reboot()
    with pytest.raises(IllegalTransition, match="another agent speaks"):
        box.process(f"b{box.boot}", machine).hello()


def test_an_agent_without_the_records_of_the_first_waits(box: Box) -> None:
    box.agent.hello()
    box.reboot()
    assert box.agent.agent is not None
    box.agent.agent = box.agent.agent._replace(memory_id="another")
    with pytest.raises(IllegalTransition, match="another agent speaks"):
        box.agent.hello()


def test_an_agent_that_ran_beside_no_master_waits(box: Box) -> None:
    """Another node that has booted: this master has not, and cannot know that the first is gone."""
    far = box.process("far1")
    far.hello()
    with pytest.raises(IllegalTransition, match="another agent speaks"):
        box.process("far2").hello()
    box.reboot()
    with pytest.raises(IllegalTransition, match="another agent speaks"):
        box.agent.hello()


@settings(max_examples=times(25, 500), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from((0.5, 3.0, 25.0))), max_size=25))
def test_no_agent_is_taken_while_another_one_may_live(steps: list[tuple[str, float]]) -> None:
    """Whatever order: an agent takes over only from itself, from one whose kernel or whose lock
    is known to be free, or after a silence of the TTL.
    """
    with a_box() as box:
        holder: SimAgent | None = None
        heard_s = box.master.clock.now_s()
        for step, seconds in steps:
            now_s = box.master.clock.now_s()
            if step == "pass":
                box.master.clock.advance(seconds)
            elif step == "beat" and holder is not None and holder.session_id is not None:
                holder.heartbeat()
                heard_s = now_s
            elif step == "master restarts":
                box.restart_master()
            elif step == "agent restarts":
                box.agent = box.process(f"b{box.boot}")
            elif step == "boot":
                box.reboot()
            if step in ("master restarts", "boot"):
                heard_s = now_s  # every silence starts anew
                for each in (box.agent, box.copy):
                    each.session_id = None
            if step in ("hello", "copy says hello"):
                asks = box.agent if step == "hello" else box.copy
                free = holder is None or holder is asks
                gone = free or (holder is not box.copy and asks is box.agent)
                silent = now_s - heard_s >= box.master.state.terms.ttl_s
                try:
                    asks.hello()
                except IllegalTransition:
                    assert not free
                    assert not silent
                else:
                    assert gone or silent
                    holder, heard_s = asks, now_s
