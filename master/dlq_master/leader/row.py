"""The port of the lease row, by which masters agree on a leader.

There is one row. Its epoch only grows, also when the row is released or taken by the same master
again. All of its times are of the database's clock: masters never compare their clocks.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dlq_common.fence import LeaderFence


class HeldLease(NamedTuple):
    """The row as it was after a question, and what the database says of itself."""

    epoch: int
    holder: str  # the process that has it or had it last; unique to each start of a master
    address: str  # where that master is reached
    left_s: float  # until it ends, by the database's clock; 0 or less: it is free
    system: str
    timeline: int
    synchronous: bool  # a commit waits for a second server
    turn: int = 0  # the last one that is committed there

    @property
    def fence(self) -> LeaderFence:
        """The fence of its leader."""
        return LeaderFence(self.system, self.timeline, self.epoch)

    @property
    def free(self) -> bool:
        """Whether anybody may take it."""
        return self.left_s <= 0


class RowUnknown(Exception):
    """There was no answer. The row may have changed all the same."""


class LeaseRow(Protocol):
    """Every call is one statement and one transaction. All raise RowUnknown."""

    def read(self) -> HeldLease:
        """The row. It is free when its time is over, and when the session that holds it has
        ended.
        """
        ...

    def try_acquire(self, seen_epoch: int, holder: str, address: str, ttl_s: float) -> HeldLease:
        """Take the row if it is free and still has this epoch; its epoch grows then."""
        ...

    def renew(self, fence: LeaderFence, holder: str, ttl_s: float) -> HeldLease:
        """Hold the row for a whole `ttl_s` from now, if it is this holder's and the fence is the
        present one. A promoted second server has another timeline.
        """
        ...

    def release(self, fence: LeaderFence, holder: str) -> HeldLease:
        """End the lease now, under the same conditions. The epoch stays."""
        ...


class RowSession(LeaseRow, Protocol):
    """A row that is asked over a session. It is opened with the first question."""

    def wait(self, seconds: float) -> bool:
        """Let the time pass; False at once when the session has ended."""
        ...

    def abandon(self) -> None:
        """From any thread: the question that is out ends with RowUnknown."""
        ...

    def close(self) -> None:
        """End the session; a lease that it holds is free then."""
        ...
