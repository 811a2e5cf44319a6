"""A master whose hooks have seen nothing yet, and the agent of its only node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlq_master.model.ids import NodeId
from dlq_master.store.batch import HOOKS_SEEN, Batch
from support.master_harness import Master
from support.sim_agent import SimAgent


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    made.store.write(Batch(meta={HOOKS_SEEN: "0"}))
    made.restart()
    yield made
    made.close()


@pytest.fixture
def agent(master: Master) -> SimAgent:
    made = SimAgent(master, NodeId("gpu01"))
    made.hello()
    return made
