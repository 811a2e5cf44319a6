"""A slow disk makes no node look alive, and no node look dead: nodes are heard when their word
arrives.
"""

import asyncio
from collections.abc import Callable

from dlq_master.control.stimuli import Heartbeat, Tick
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeState
from dlq_master.store.batch import Batch
from support.master_harness import Master
from support.memory_store import MemoryStore
from support.sim_agent import SimAgent

COMMIT_S = 2.3
ROUNDS = 40  # of one slow commit each: far more than a silent node is given


class SlowStore(MemoryStore):
    """Every commit takes COMMIT_S of the master's clock, in which the event loop goes on."""

    def __init__(self, step: Callable[[float], None]) -> None:
        super().__init__()
        self._step = step

    async def commit(self, batch: Batch) -> None:
        for _ in range(10):
            self._step(COMMIT_S / 10)
            await asyncio.sleep(0)
        await super().commit(batch)


async def _rounds(master: Master, beats: Callable[[], None], count: int = ROUNDS) -> None:
    """Turns of the running loop, each with a submit and a tick, and what nodes say during its
    commit.
    """

    def step(seconds: float) -> None:
        master.clock.advance(seconds)
        beats()

    slow = SlowStore(step)
    slow._rows = master.store._rows
    master.loop._store = slow
    master.loop._records = slow
    master.loop._listen_every_s = 0.0  # no real time passes
    turning = asyncio.ensure_future(master.loop.run())
    for _ in range(count):
        master.loop.tell(Tick("leases"))
        await master.loop.ask(master.submission())
    master.loop.stop()
    await turning


def _state(master: Master, node_id: str) -> NodeState:
    return master.state.cluster.nodes[NodeId(node_id)].state


def test_a_node_that_died_is_noticed_while_every_commit_is_slow(
    master: Master, agent: SimAgent
) -> None:
    master._tasks.run_until_complete(_rounds(master, lambda: None))
    assert _state(master, agent.node_id) is NodeState.UNREACHABLE


def test_a_node_that_speaks_during_slow_commits_is_up(master: Master, agent: SimAgent) -> None:
    session_id = master.state.nodes.sessions[NodeId(agent.node_id)]

    def beat() -> None:
        master.loop.tell(Heartbeat(node_id=NodeId(agent.node_id), session_id=session_id))

    master._tasks.run_until_complete(_rounds(master, beat))
    assert _state(master, agent.node_id) is NodeState.UP


async def _stopped(master: Master, seconds: float) -> None:
    turning = asyncio.ensure_future(master.loop.run())
    await master.loop.ask(master.submission())
    master.clock.advance(seconds)  # SIGSTOP: neither the loop nor the sockets
    master.loop.tell(Tick("leases"))
    await master.loop.ask(master.submission())
    master.loop.stop()
    await turning


def test_a_master_that_was_stopped_excuses_what_it_could_not_read(
    master: Master, agent: SimAgent
) -> None:
    master._tasks.run_until_complete(_stopped(master, 600.0))
    assert _state(master, agent.node_id) is NodeState.UP
