"""Masters and agents for stories."""

from collections.abc import Callable, Iterator

import pytest

from dlq_master.control.config import MasterConfig
from dlq_master.model.ids import NodeId
from support.master_harness import Master
from support.sim_agent import SimAgent


@pytest.fixture
def masters() -> Iterator[Callable[..., Master]]:
    """Makes masters, and gives their event loops back."""
    made: list[Master] = []

    def make(config: MasterConfig | None = None) -> Master:
        made.append(Master(config))
        return made[-1]

    yield make
    for master in made:
        master.close()


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    """Arrival order, skipping what does not fit; no preemption."""
    return masters()


@pytest.fixture
def agent(master: Master) -> SimAgent:
    """A node with four GPUs that has said hello."""
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    return agent


@pytest.fixture
def other(master: Master) -> SimAgent:
    """Another one."""
    other = SimAgent(master, NodeId("gpu02"))
    other.hello()
    return other
