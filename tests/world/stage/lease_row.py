"""The lease row of a store that masters share, and one master's part in it.

The row is a model of the database's; the knowledge of each master about it is the product's own
core (`dlq_master.leader.lease`). The row answers late, or not at all, and may have changed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_common.fence import LeaderFence
from dlq_master.leader.lease import NO_FENCE, Ask, LeaderLease, Standing, carried_out
from dlq_master.leader.row import HeldLease, RowUnknown
from dlq_master.store.postgres.fence import JUMP
from world.stage.tape import Stream
from world.stage.virtual_loop import VirtualLoop

SYSTEM = "1"
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
        self.timeline = 1  # raised by each promotion of a second server
        self._given_on = 1  # the timeline on which the present epoch was given
        self._right: int | None = None  # the epoch of the server that has all commits
        self.behind = 0  # turns that the present server has lost
        self.turn = 0  # the last one that a master has committed
        self.candidates: list[Candidate] = []

    def read(self) -> HeldLease:
        left_s = self._until_s - self._loop.time()
        return HeldLease(
            self.epoch, self.holder, self._address, left_s, SYSTEM, self.timeline, True,
            self.turn - self.behind,
        )  # fmt: skip

    def try_acquire(self, seen_epoch: int, holder: str, address: str, ttl_s: float) -> HeldLease:
        if self.read().free and seen_epoch == self.epoch:
            self.epoch += 1 if self._given_on == self.timeline else JUMP
            self._given_on = self.timeline
            self.holder, self._address = holder, address
            self._until_s = self._loop.time() + ttl_s
        return self.read()

    def renew(self, fence: LeaderFence, holder: str, ttl_s: float) -> HeldLease:
        if self.is_held_by(fence, holder):
            self._until_s = self._loop.time() + ttl_s
        return self.read()

    def release(self, fence: LeaderFence, holder: str) -> HeldLease:
        if self.is_held_by(fence, holder):
            self._until_s = self._loop.time()
        return self.read()

    @property
    def lags(self) -> bool:
        """The present server lacks commits."""
        return self._right is not None

    def is_held_by(self, fence: LeaderFence, holder: str) -> bool:
        """Whether the row is as this leader knows it."""
        return holder == self.holder and fence == LeaderFence(SYSTEM, self.timeline, self.epoch)

    def promote(self, *, lagging: bool, behind: int) -> bool:
        """The second server takes over; all sessions are lost. A lagging one lacks so many turns,
        or with 0 the last leader. Only masters that have heard of those refuse it: False if one
        has not.
        """
        if lagging:
            if self._right is not None or not all(
                self._knows(it, behind) for it in self.candidates
            ):
                return False
            self._right, self.behind = self.epoch, behind
            self.epoch -= 0 if behind else 1
        self._take_over()
        return True

    def _knows(self, candidate: Candidate, behind: int) -> bool:
        lease = candidate.lease
        if behind:
            return lease.turn > self.turn - behind >= 0
        return lease.known.epoch == self.epoch >= 2

    def promote_right(self) -> None:
        """The server that has all commits takes the place of the lagging one."""
        if self._right is not None:
            self.epoch, self._right = max(self.epoch, self._right), None
            self.behind = 0
            self._take_over()

    def _take_over(self) -> None:
        self.timeline += 1
        self._until_s = self._loop.time()
        for candidate in self.candidates:
            candidate.session_lost()


@dataclass(slots=True)
class SeenHere:
    """What the host of a master has seen of the database, in earlier lives too."""

    fence: LeaderFence = NO_FENCE
    turn: int = 0


class Candidate:
    """One process of a master: waits, leads, and is over. It is the fence of its writes."""

    def __init__(
        self, row: SharedRow, name: str, holder: str, clock: Clock, seen: SeenHere
    ) -> None:
        self._row, self._name, self._clock = row, name, clock
        self.lease = LeaderLease(holder, known=seen.fence, turn=seen.turn)
        self.leads = asyncio.Event()
        self._seen = seen
        row.candidates = [it for it in row.candidates if it._name != name] + [self]

    def holds(self) -> bool:
        """Every transaction begins with a look at the row: it must be this leader's."""
        mine = self._row.is_held_by(self.lease.fence, self.lease.holder)
        return mine and self._name not in self._row.cut_off

    def session_lost(self) -> None:
        """The database has ended its session."""
        self.lease.session_lost(self._clock.boottime_s())

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
                self._remember(row)
            if self.lease.standing is Standing.LEADING:
                self.leads.set()

    def _remember(self, row: HeldLease) -> None:
        """On its host, for its next lives."""
        lease, seen = self.lease, self._seen
        if not lease.why:
            lease.turn = max(lease.turn, row.turn)
        seen.fence, seen.turn = lease.known, lease.turn

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
        timeline = row.timeline
        await asyncio.sleep(row.draws.pick(ANSWER_S))
        found = carried_out(ask, self.lease, row, self._name)
        await asyncio.sleep(row.draws.pick(ANSWER_S))
        if self._name in row.cut_off or timeline != row.timeline:
            raise RowUnknown  # its session has ended
        return found
