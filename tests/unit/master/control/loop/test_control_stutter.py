"""A master that stalls again and again notices a silent node, and takes no speaking one for dead.

The bound is stated in docs/running/runbook.md: of each stall one second counts as silence.
"""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from dlq_master.control.loop.loop import LAG_NOTED_S
from dlq_master.control.stimuli import Heartbeat, Tick
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeState
from support.master_harness import Master
from support.sim_agent import SimAgent

STALLS_S = (1.5, 3.0, 20.0)
AWAKE_S = 0.05  # of the master, between two stalls
UNREACHABLE_S = 25.0  # of the defaults
HEARTBEAT_S = 5.0
MOST_STALLS = round(UNREACHABLE_S / LAG_NOTED_S)


async def _slow_turns(
    master: Master, turn_s: float, turns: int, speaks: Callable[[], None]
) -> None:
    """Turns that last so long, one after the other: there is always a request that waits."""

    def speak() -> None:
        speaks()
        master.clock.advance(turn_s)

    master.loop._progressed = speak
    turning = asyncio.ensure_future(master.loop.run())
    for _ in range(turns):
        await master.loop.ask(master.submission())
    master.loop._progressed = lambda: None
    master.loop.stop()
    await turning


async def _stutter(master: Master, stall_s: float, stalls: int, speaks: Callable[[], None]) -> None:
    """Stalls in which neither turns come nor sockets are read. After each, `speaks` is called when
    the sockets are read, which is after the tick that was late.
    """
    turning = asyncio.ensure_future(master.loop.run())
    await master.loop.ask(master.submission())
    for _ in range(stalls):
        master.clock.advance(stall_s)
        master.loop.tell(Tick("leases"))
        await master.loop.ask(master.submission())
        speaks()
        master.clock.advance(AWAKE_S)
        await master.loop.ask(master.submission())
    master.loop.stop()
    await turning


def _state(master: Master, node_id: str) -> NodeState:
    return master.state.cluster.nodes[NodeId(node_id)].state


def _beats(master: Master, agents: Sequence[SimAgent]) -> None:
    for agent in agents:
        session_id = master.state.nodes.sessions[NodeId(agent.node_id)]
        master.loop.tell(Heartbeat(node_id=NodeId(agent.node_id), session_id=session_id))


@pytest.mark.parametrize("stall_s", STALLS_S)
def test_a_silent_node_is_noticed_within_the_stated_number_of_stalls(
    master: Master, agent: SimAgent, other: SimAgent, stall_s: float
) -> None:
    stutter = _stutter(master, stall_s, MOST_STALLS, lambda: _beats(master, [other]))
    master._tasks.run_until_complete(stutter)
    assert _state(master, agent.node_id) is NodeState.UNREACHABLE
    assert _state(master, other.node_id) is NodeState.UP


@pytest.mark.parametrize("turn_s", STALLS_S)
def test_a_silent_node_is_noticed_although_each_turn_is_slow(
    master: Master, agent: SimAgent, other: SimAgent, turn_s: float
) -> None:
    """It never was: the loop had no patience left, and took the whole turn for a stall."""
    slow = _slow_turns(master, turn_s, MOST_STALLS + 2, lambda: _beats(master, [other]))
    master._tasks.run_until_complete(slow)
    assert _state(master, agent.node_id) is NodeState.UNREACHABLE
    assert _state(master, other.node_id) is not NodeState.UNREACHABLE


@pytest.mark.parametrize("stall_s", STALLS_S)
def test_nodes_that_speak_as_often_as_they_should_are_up_all_the_time(
    master: Master, agent: SimAgent, other: SimAgent, stall_s: float
) -> None:
    """Their words are read after a stall, the words of longer silences at its end."""
    passed_s = 0.0

    def speak() -> None:
        nonlocal passed_s
        passed_s += stall_s + AWAKE_S
        if passed_s >= HEARTBEAT_S:
            passed_s = 0.0
            _beats(master, [agent, other])
        states = [_state(master, each.node_id) for each in (agent, other)]
        assert states == [NodeState.UP, NodeState.UP]

    master._tasks.run_until_complete(_stutter(master, stall_s, 4 * MOST_STALLS, speak))


@pytest.mark.parametrize("pause_s", [30.0, 600.0, 86_400.0])
def test_after_a_pause_of_its_own_it_takes_no_node_for_dead(
    master: Master, agent: SimAgent, other: SimAgent, pause_s: float
) -> None:
    """SIGSTOP, a machine that slept, a collector of garbage: no word has been read yet."""
    seen: list[NodeState] = []

    def look() -> None:
        seen.extend(_state(master, each.node_id) for each in (agent, other))

    master._tasks.run_until_complete(_stutter(master, pause_s, 1, look))
    assert seen == [NodeState.UP, NodeState.UP]
