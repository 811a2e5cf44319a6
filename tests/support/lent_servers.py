"""Servers of the inference side on a master without sockets: their agents, and what is asked of
loans.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count as counting
from typing import Any

from dlq_master.control.stimuli.loans import LendServers, Reading, ReclaimServers, TakeLook
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.nodes.node_steps import Registered
from support.master_harness import ROOT, Master
from support.sim_agent import SimAgent


class Server(SimAgent):
    """An agent of the inference side. `held`: what its devices say, whatever its agent believes."""

    held: tuple[Reading, ...] | None = None

    def facts(self) -> Registered:
        return replace(super().facts(), pool=NodePool.INFERENCE)

    def answer(self) -> None:
        """Obey, and say what the devices say to the last look that was asked for."""
        self.obey()
        assert self.session_id is not None
        empty = tuple(Reading(gpu, 0, 0) for gpu in range(self.gpus))
        if self.looks:
            self.master.turn(
                TakeLook(
                    node_id=self.node_id,
                    session_id=self.session_id,
                    number=self.looks[-1],
                    readings=empty if self.held is None else self.held,
                )
            )
        self.looks.clear()


def server(master: Master, name: str = "inf01") -> Server:
    agent = Server(master, NodeId(name))
    agent.hello()
    return agent


_requests = counting()


def lend(master: Master, *names: str, count: int = 0, request_id: str = "") -> Any:
    ids = tuple(NodeId(name) for name in names)
    request_id = request_id or f"l{next(_requests)}"
    return master.ask(LendServers(caller=ROOT, request_id=request_id, node_ids=ids, count=count))


def asked(*names: str, **more: Any) -> ReclaimServers:
    ids = tuple(NodeId(name) for name in names)
    return ReclaimServers(
        **{"caller": ROOT, "request_id": f"r{next(_requests)}", "node_ids": ids, **more}
    )


def lent(master: Master, *names: str) -> list[Server]:
    """Servers that are lent."""
    agents = [server(master, name) for name in names]
    lend(master, *names)
    for agent in agents:
        agent.answer()
    assert all(master.node(name).open for name in names)
    return agents


def flags(master: Master, name: str = "inf01") -> set[str]:
    return {flag.value for flag in master.node(name).flags}


def saves(agent: SimAgent, key: AttemptKey) -> None:
    agent.obey()
    agent.save(key, 1)
    agent.exit(key, 99)
    agent.report()
