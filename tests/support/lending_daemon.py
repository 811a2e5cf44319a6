"""The stepped master in a world whose inference side follows its load: servers are lent and asked
back by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dlq_master.control.loans.loan_auto import Follower
from dlq_master.control.stimuli.loans import LendServers, ReclaimServers, TakeLook
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag, NodePool
from support.fake_clock import SeededIds
from support.stepped_daemon import SteppedDaemon


class LendingDaemon(SteppedDaemon):
    """`loads`: instants, and the share of the `servers` that is in use from then on, each looked at
    as it comes.
    """

    def __init__(
        self,
        *args: Any,
        servers: Sequence[str],
        loads: Sequence[tuple[float, float]],
        **more: Any,
    ) -> None:
        pools: Mapping[str, str] = dict.fromkeys(servers, NodePool.INFERENCE.value)
        super().__init__(*args, pools=pools, **more)
        self._servers, self._loads = servers, loads
        config = self.state.config.loans
        told = (config, self.loop, self.state.loans, self.clock, SeededIds(11))
        self._follower = Follower(*told, read=lambda _source: self._busy)
        self._busy = 1.0
        for number, (at_s, _) in enumerate(loads):
            self._foresee(self.begin_s + at_s, "load", "", number)

    async def _happens(self, what: str, name: str, number: int) -> None:
        if what != "load":
            await super()._happens(what, name, number)
            return
        self._busy = self._loads[number][1]
        look = asyncio.create_task(self._follower.look())
        while not look.done():
            await self._until(lambda: look.done() or self._envelopes(LendServers, ReclaimServers))
            if not look.done():
                await self._turn()
        look.result()
        assert self.state.loans.followed is not None
        assert not self.state.loans.followed.fault, self.state.loans.followed.fault
        await self._until(self._all_have_looked)  # the simulator lends all of them at once
        await self._turn()
        await self._settle()  # whoever has to leave has been told: they do so all at once

    def _all_have_looked(self) -> bool:
        return self._envelopes(TakeLook) == len(self.state.loans.asked)

    def _envelopes(self, *kinds: type) -> int:
        """So many of these have arrived."""
        return sum(isinstance(letter.stimulus, kinds) for letter in self.loop._inbox._envelopes)

    def _quiet(self) -> bool:
        return super()._quiet() and not self.state.loans.asked

    async def _settle(self) -> None:
        await super()._settle()
        if any(map(self._has_been_left, self._servers)):
            await self._look_at_time()  # its devices are asked once a second
            await super()._settle()

    def _has_been_left(self, name: str) -> bool:
        cluster = self.state.cluster
        node = cluster.nodes[NodeId(name)]
        return NodeFlag.RECLAIMED in node.flags and not cluster.attempts_on(node.node_id)
