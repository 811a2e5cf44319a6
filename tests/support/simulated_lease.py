"""A lease row without a database: one server, perhaps a lagging second one, and a clock of its own.

It obeys the port's contract as PostgreSQL does. Tests stop its answers, end sessions, and promote a
second server that has not heard the last changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlq_common.fence import LeaderFence
from dlq_master.leader.row import HeldLease, RowUnknown


@dataclass
class StoredLease:
    """The row itself; `session` is the one that may hold it."""

    epoch: int = 0
    holder: str = ""
    address: str = ""
    ends_s: float = 0.0
    session: int = 0
    turn: int = 0


@dataclass
class LeaseServer:
    """The database of all masters. `now_s` is its clock: tests move it."""

    system: str = "71"
    timeline: int = 1
    synchronous: bool = True
    now_s: float = 0.0
    row: StoredLease = field(default_factory=StoredLease)
    copy: StoredLease = field(default_factory=StoredLease)
    sessions: set[int] = field(default_factory=set)
    opened: int = 0

    def open(self) -> int:
        """A session."""
        self.opened += 1
        self.sessions.add(self.opened)
        return self.opened

    def copied(self) -> None:
        """The second server has heard everything until now."""
        self.copy = replace(self.row)

    def promote(self) -> None:
        """The first server is gone, and the second goes on with what it has heard."""
        self.row, self.timeline = replace(self.copy), self.timeline + 1
        self.sessions.clear()

    def told(self) -> HeldLease:
        """The row as an answer."""
        row = self.row
        held = bool(row.holder) and row.session in self.sessions
        return HeldLease(
            epoch=row.epoch,
            holder=row.holder,
            address=row.address,
            left_s=row.ends_s - self.now_s if held else 0.0,
            system=self.system,
            timeline=self.timeline,
            synchronous=self.synchronous,
            turn=row.turn,
        )


@dataclass
class SimulatedRow:
    """One master's session. `cut`: no answer comes; `lost`: and no question arrives either."""

    server: LeaseServer
    session: int = 0
    cut: bool = False
    lost: bool = False

    def __post_init__(self) -> None:
        self.session = self.server.open()

    def end(self) -> None:
        """The master's process has died: the server sees the end of its session."""
        self.server.sessions.discard(self.session)

    def reopened(self) -> None:
        """A new session, after the old one was lost."""
        self.end()
        self.session, self.cut, self.lost = self.server.open(), False, False

    def read(self) -> HeldLease:
        return self._answer()

    def try_acquire(self, seen_epoch: int, holder: str, address: str, ttl_s: float) -> HeldLease:
        self._arrive()
        if self.server.told().free and self.server.row.epoch == seen_epoch:
            ends_s = self.server.now_s + ttl_s
            turn = self.server.row.turn
            self.server.row = StoredLease(
                seen_epoch + 1, holder, address, ends_s, self.session, turn
            )
            self._replicate()
        self._refuse_lost_session(holder)
        return self._answer()

    def renew(self, fence: LeaderFence, holder: str, ttl_s: float) -> HeldLease:
        self._arrive()
        row = self.server.row
        if (self.server.told().fence, row.holder) == (fence, holder):
            self._refuse_lost_session(holder)
            row.ends_s, row.session = self.server.now_s + ttl_s, self.session
            self._replicate()
        return self._answer()

    def release(self, fence: LeaderFence, holder: str) -> HeldLease:
        self._arrive()
        row = self.server.row
        if (self.server.told().fence, row.holder) == (fence, holder):
            row.ends_s = self.server.now_s
            self._replicate()
        return self._answer()

    def _arrive(self) -> None:
        if self.lost or self.session not in self.server.sessions:
            raise RowUnknown("the server is not reached")

    def _refuse_lost_session(self, holder: str) -> None:
        row = self.server.row
        if row.holder == holder and row.session in self.server.sessions - {self.session}:
            raise RowUnknown("a lost session has the row, and has not ended on the server")

    def _answer(self) -> HeldLease:
        self._arrive()
        if self.cut:
            raise RowUnknown("no answer")
        return self.server.told()

    def _replicate(self) -> None:
        if self.server.synchronous:
            self.server.copied()
