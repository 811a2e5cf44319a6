"""The lease row of a store that masters share, and one master's part in it.

The row is a model of the database's; the knowledge of each master about it is the product's own
core (`dlq_master.leader.lease`). The row answers late, or not at all, and may have changed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dlq_common.clock import Clock
from dlq_common.fence import LeaderFence
from dlq_master.leader.lease import Ask, LeaderLease, Standing, carried_out
from dlq_master.leader.row import HeldLease, RowUnknown
from world.stage.tape import Stream
from world.stage.virtual_loop import VirtualLoop

ANSWER_S = (0.002, 0.01, 0.1, 0.8)
UNREACHABLE_S = 1.5
LOOK_S = 0.2


class SharedRow:
    """One row, on the database's clock."""

    def __init__(self, loop: VirtualLoop, draws: Stream) -> None:
        self._loop = loop
        self.draws = draws
        self.epoch = 0
        self.holder = ""
        self._address = ""
        self._until_s = 0.0
        self.cut_off: set[str] = set()  # masters that cannot reach the database

    def read(self) -> HeldLease:
        left_s = self._until_s - self._loop.time()
        return HeldLease(self.epoch, self.holder, self._address, left_s, "system", 1, True)

    def try_acquire(self, seen_epoch: int, holder: str, address: str, ttl_s: float) -> HeldLease:
        if self.read().free and seen_epoch == self.epoch:
            self.epoch += 1
            self.holder, self._address = holder, address
            self._until_s = self._loop.time() + ttl_s
        return self.read()

    def renew(self, fence: LeaderFence, holder: str, ttl_s: float) -> HeldLease:
        if self.holder == holder and self.epoch == fence.epoch:
            self._until_s = self._loop.time() + ttl_s
        return self.read()

    def release(self, fence: LeaderFence, holder: str) -> HeldLease:
        if self.holder == holder and self.epoch == fence.epoch:
            self._until_s = self._loop.time()
        return self.read()


class Candidate:
    """One process of a master: waits, leads, and is over. It is the fence of its writes."""

    def __init__(self, row: SharedRow, name: str, holder: str, clock: Clock) -> None:
        self._row, self._name, self._clock = row, name, clock
        self.lease = LeaderLease(holder)
        self.leads = asyncio.Event()

    def holds(self) -> bool:
        """Every transaction begins with a look at the row: it must be this leader's."""
        row = self._row
        mine = row.holder == self.lease.holder and row.epoch == self.lease.fence.epoch
        return mine and self._name not in row.cut_off

    @property
    def fence(self) -> LeaderFence:
        """Of this leadership."""
        return self.lease.fence

    def may_speak(self) -> bool:
        """No command and no answer leaves after that."""
        return self.lease.may_speak(self._clock.boottime_s())

    async def keep(self) -> None:
        """Ask the row what is due."""
        while True:
            ask = self.lease.due(self._clock.boottime_s())
            if ask is None:
                await asyncio.sleep(LOOK_S)
                continue
            try:
                row = await self._answer(ask)
            except RowUnknown:
                self.lease.unknown(ask, self._clock.boottime_s())
            else:
                self.lease.answered(ask, row, self._clock.boottime_s())
            if self.lease.standing is Standing.LEADING:
                self.leads.set()

    async def watch(self, over: Callable[[str], None]) -> None:
        """Tell when this master has led, and does so no more."""
        over_now = self.lease.is_over
        while not over_now(self._clock.boottime_s()):  # noqa: ASYNC110 - a clock tells no event
            await asyncio.sleep(LOOK_S)
        over(self.lease.why)

    async def _answer(self, ask: Ask) -> HeldLease:
        row = self._row
        if self._name in row.cut_off:
            await asyncio.sleep(UNREACHABLE_S)
            raise RowUnknown
        await asyncio.sleep(row.draws.pick(ANSWER_S))
        found = carried_out(ask, self.lease, row, self._name)
        await asyncio.sleep(row.draws.pick(ANSWER_S))
        if self._name in row.cut_off:
            raise RowUnknown
        return found
