"""Servers are lent and asked back by themselves: by the load of the inference side, with head-room
and patience.

The controller that simulations use decides when (policy/reclaim/controller.py). Servers are asked
back as soon as the load needs them. They are lent only when the load could have spared them for a
while. While the source is silent nothing changes, and `dlq admin loan auto` says why. After a
restart of the master, a long silence, or a reclaim by people, it watches anew for `settle` before
it lends more.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_common.ids import Ids
from dlq_master.control.config import LoansConfig
from dlq_master.control.loans.load_sources import TIMEOUT_S, LoadUnknown, read_load
from dlq_master.control.loans.reclaims import ask_back
from dlq_master.control.loans.state import Followed, LoanState
from dlq_master.control.loop.ports import StimulusSink
from dlq_master.control.stimuli.caller import Caller
from dlq_master.control.stimuli.loans import LendServers, ReclaimServers
from dlq_master.model.nodes.node import CLOSED, Node, NodeFlag, NodePool, NodeState
from dlq_master.policy.reclaim.controller import Lender, Lending, follow

CALLER = Caller("loans-auto", "inference")
FEW_LOOKS = 3  # that may tell nothing before it watches anew, where `settle` is no longer than that
_log = get_logger("master.loans")


class PublishedNodes(Protocol):
    """The published nodes."""

    def nodes(self) -> Sequence[Node]: ...


class NodesControl(StimulusSink, Protocol):
    """The loop as the follower sees it."""

    @property
    def published(self) -> PublishedNodes: ...


class Follower:
    """Looks at the load every now and then, and lets servers be lent or asked back."""

    def __init__(
        self,
        config: LoansConfig,
        control: NodesControl,
        loans: LoanState,
        clock: Clock,
        ids: Ids,
        read: Callable[[str], float] | None = None,
        patience_s: float = 2.0 * TIMEOUT_S,
    ) -> None:
        """`read`: how busy a source is, by default as it says itself; runs in a thread.
        `patience_s`: until it is said that it does not answer.
        """
        self._config = config
        self._control = control
        self._loans = loans
        self._clock = clock
        self._ids = ids
        self._read = read or partial(read_load, max_age_s=config.max_age)
        self._patience_s = patience_s
        self._reading: asyncio.Task[float] | None = None
        self._lending = Lending()
        self._left = 0  # lent when the last look was over
        if config.load:
            loans.followed = Followed(config.load)

    async def run(self) -> None:
        """Until it is cancelled; nothing is followed where no source is named."""
        while self._config.load:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - logged; servers must still be asked back at the next look
                _log.exception("load_look_failed")
            await asyncio.sleep(self._config.every)

    async def look(self) -> None:
        """One look, and what follows from it."""
        if self._loans.off is not None:
            self._lending = Lending()  # who watches again watches anew
            return
        before = self._loans.followed or Followed(self._config.load)
        try:
            busy = await self._busy()
        except LoadUnknown as error:
            self._say(before._replace(fault=str(error)))
            return
        now_s = self._clock.now_s()
        servers = [
            node for node in self._control.published.nodes() if node.pool is NodePool.INFERENCE
        ]
        lent = sum(map(_is_lent, servers))
        there = sum(_is_lent(node) or node.state is NodeState.UP for node in servers)
        lender = Lender(there, self._config.headroom, float(self._config.settle))
        if lent < self._left or self._has_not_looked(now_s):
            self._lending = Lending()
        self._lending = follow(self._lending._replace(lent=lent), lender, now_s, busy)
        told = Followed(self._config.load, busy, now_s, self._lending.lent)
        self._left = lent
        try:
            self._left += await self._carry_out(servers, self._lending.lent - lent)
        except DlqError as error:
            told = told._replace(fault=error.what)
        self._say(told)

    def _has_not_looked(self, now_s: float) -> bool:
        """Whether the source has told nothing for so long that nobody knows how idle servers have
        been.
        """
        idle = self._lending.idle
        longest_s = max(float(self._config.settle), FEW_LOOKS * self._config.every)
        return bool(idle) and now_s - idle[-1][0] > longest_s

    async def _busy(self) -> float:
        """The last value of the source. One that does not answer is waited for, and not asked again
        meanwhile.
        """
        if self._reading is None:
            reading = asyncio.to_thread(self._read, self._config.load)
            self._reading = asyncio.create_task(reading)
        done, _ = await asyncio.wait({self._reading}, timeout=self._patience_s)
        if not done:
            raise LoadUnknown(f"{self._config.load[:80]}: it has not answered yet")
        reading_done, self._reading = self._reading, None
        return reading_done.result()

    async def _carry_out(self, servers: list[Node], more: int) -> int:
        """So many more are lent then."""
        able = [node.node_id for node in servers if _can_be_lent(node)][: max(0, more)]
        request_id = self._ids.request_id()
        if able:
            await self._control.ask(
                LendServers(caller=CALLER, request_id=request_id, node_ids=tuple(able))
            )
        if more < 0:
            within_s = float(self._config.within) or None
            ask = ReclaimServers(
                caller=CALLER,
                request_id=request_id,
                count=-more,
                within_s=within_s,
                force=within_s is not None,
            )
            await ask_back(self._control, ask)
        return min(more, len(able))

    def _say(self, told: Followed) -> None:
        before = self._loans.followed
        if told.fault and (before is None or before.fault != told.fault):
            _log.warning("load_not_followed", cause=told.fault)
        self._loans.followed = told


def _is_lent(node: Node) -> bool:
    lent = node.flags & {NodeFlag.LOANED, NodeFlag.LENDING}
    return bool(lent) and NodeFlag.RECLAIMED not in node.flags


def _can_be_lent(node: Node) -> bool:
    return node.away and node.state is NodeState.UP and not node.flags & CLOSED
