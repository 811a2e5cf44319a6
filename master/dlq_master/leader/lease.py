"""The lease of the leading master, as a core without clock, thread or connection.

Times are CLOCK_BOOTTIME of this host, and come with every call. A lease that was asked for at some
instant is counted from that instant, so it ends here before it ends in the database. At two thirds
of its time the master falls silent, and stays so until a renewal is confirmed. At its full time the
process ends. A rival gets the row only after the full time, or when the holder's session has
ended.

The caller asks `due`, carries out what it says, and gives back `answered` or `unknown`. One
question is out at a time.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from dlq_common.fence import LeaderFence, later, refusal
from dlq_master.leader.row import HeldLease, LeaseRow

# A master speaks for this part of its lease. The rest is for messages under way.
SPEAKS = 2 / 3
NEVER_S = -math.inf
NO_FENCE = LeaderFence()
# A standby that has read the turns so lately has all that count.
READY_S = 2.0
LEAST_S = 0.01  # between two looks
ONE_SERVER = "no second server confirms commits (synchronous_standby_names is empty)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How long a lease lasts, how often it is renewed, and how often a standby looks."""

    ttl_s: float = 4.0
    renew_s: float = 1.0
    poll_s: float = 0.25


class Standing(StrEnum):
    """The part of this master."""

    STANDBY = "standby"
    LEADING = "leading"
    LEAVING = "leaving"  # it has stopped, and gives the lease back
    OVER = "over"  # it has led, and its process ends


class RowQuestion(StrEnum):
    """A call of the lease row."""

    READ = "read"
    TRY = "try"
    RENEW = "renew"
    RELEASE = "release"


class Ask(NamedTuple):
    """A question, the fence that goes with it, and when it was asked."""

    question: RowQuestion
    fence: LeaderFence
    sent_s: float


class MasterPart(NamedTuple):
    """The part of one master, as it tells it to others."""

    address: str
    leads: bool
    held_s: float  # for so long it has had this part
    leader: str  # its address; "": nobody leads, as far as is known
    fence: LeaderFence  # of the leader
    left_s: float  # until the leader's lease ends
    turn: int  # the last one that was committed, or read
    read_ago_s: float  # of a standby, since it read the turns; infinite: it has read none
    why: str  # why this standby would not take the lead
    masters: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether this standby could lead at once."""
        return not self.leads and not self.why and self.read_ago_s <= READY_S


@dataclass(slots=True)
class LeaderLease:
    """The knowledge of one process about the lease. `holder` is drawn anew at each start."""

    holder: str
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    allow_async: bool = False
    former: Container[str] = ()
    waits_until_s: float = NEVER_S
    """Until then others may take the lead, and this master does not try."""
    known: LeaderFence = NO_FENCE
    """The highest fence that this master has seen, in earlier lives too."""
    turn: int = 0
    """The last turn that is known to be committed in the database that answers."""
    standing: Standing = Standing.STANDBY
    fence: LeaderFence = NO_FENCE
    """Of its own leadership."""
    leader: str = ""
    """The address of the master that leads, as far as is known."""
    why: str = ""
    """Why this standby does not try, or why this leader is over."""
    _confirmed_s: float = NEVER_S
    _others_until_s: float = NEVER_S
    _due_s: float = NEVER_S
    _next: RowQuestion = RowQuestion.READ
    _out: bool = False

    # --- questions ----------------------------------------------------------------------------

    def due(self, now_s: float) -> Ask | None:
        """The question that is due. It counts as asked at `now_s`."""
        if self._out or self.standing is Standing.OVER or now_s < self._due_s:
            return None
        self._out = True
        looks = self._next in (RowQuestion.READ, RowQuestion.TRY)
        fence = self.known if looks else self.fence
        return Ask(self._next, fence, now_s)

    def due_s(self) -> float:
        """When `due` has the next question, if nothing happens before."""
        return math.inf if self._out or self.standing is Standing.OVER else self._due_s

    def answered(self, ask: Ask, row: HeldLease, now_s: float) -> None:
        """The row has answered."""
        self._out = False
        match ask.question:
            case RowQuestion.READ | RowQuestion.TRY:
                self._looked(ask, row, now_s)
            case RowQuestion.RENEW if self.standing is Standing.STANDBY and self._lacks(row):
                self._then(RowQuestion.READ, now_s)
            case RowQuestion.RENEW if self._is_mine(row) and row.fence == self.fence:
                self._renewed(ask, row, now_s)
            case RowQuestion.RENEW if self.standing is Standing.STANDBY:
                self._then(RowQuestion.READ, now_s)
            case RowQuestion.RENEW:
                self._end(_lost(self.fence, row))
            case RowQuestion.RELEASE:
                self._end("it was given back")

    def unknown(self, ask: Ask, now_s: float) -> None:
        """No answer came. The row may have changed all the same."""
        self._out = False
        match ask.question:
            case RowQuestion.RELEASE:
                self._end("it could not be given back")
            case RowQuestion.RENEW if self.standing is not Standing.STANDBY:
                self._then(RowQuestion.RENEW, now_s + self.terms.poll_s / 2)
            case _:
                self._then(RowQuestion.READ, now_s + self.terms.poll_s)

    # --- what this master may do --------------------------------------------------------------

    def speaks_until_s(self) -> float:
        """No command, no lease of a node and no answer to a change leaves after that."""
        if self.standing is not Standing.LEADING:
            return NEVER_S
        return self._confirmed_s + SPEAKS * self.terms.ttl_s

    def left_s(self, now_s: float) -> float:
        """Until the leader's lease ends, by what is known here."""
        if self.standing is Standing.STANDBY:
            return self._others_until_s - now_s
        return self._confirmed_s + self.terms.ttl_s - now_s

    def may_speak(self, now_s: float) -> bool:
        """Whether this master leads, and nobody else can."""
        return now_s < self.speaks_until_s()

    def is_over(self, now_s: float) -> bool:
        """Whether the process must end: it has led, and does so no more."""
        if self.standing is Standing.LEADING and now_s >= self._confirmed_s + self.terms.ttl_s:
            self._end(self.why or "no renewal was confirmed in time")
        return self.standing is Standing.OVER

    def session_lost(self, now_s: float) -> None:
        """The session that holds the row has ended: a rival may take it at once. Silent until the
        row is renewed.
        """
        if self.standing is Standing.LEADING:
            silent_s = now_s - SPEAKS * self.terms.ttl_s
            self._confirmed_s = min(self._confirmed_s, silent_s)
            if not self._out:
                self._then(RowQuestion.RENEW, now_s)

    def step_down(self, now_s: float) -> None:
        """Give the lease back. Call it when nothing more will be said or written."""
        if self.standing is Standing.LEADING:
            self.standing = Standing.LEAVING
            self._then(RowQuestion.RELEASE, now_s)

    # --- helpers, in order of use -------------------------------------------------------------

    def _looked(self, ask: Ask, row: HeldLease, now_s: float) -> None:
        if self._is_mine(row):
            # Another server may have come between the look and the try.
            self.why = self._lacks(row) or self._unsafe(row)
            if self.why:
                self._then(RowQuestion.READ, now_s + self.terms.poll_s)
                return
            self.fence = row.fence
            self.known = later(self.known, row.fence)
            if ask.question is RowQuestion.TRY:
                self._confirmed(ask)
            else:
                # The answer to an earlier try was lost, and its session may end at any moment. A
                # rival is free to take the row then, so a renewal must confirm it first.
                self._then(RowQuestion.RENEW, now_s)
            return
        self.leader = "" if row.free else row.address
        if not row.free:  # others have taken it
            self.waits_until_s = NEVER_S
        self._others_until_s = ask.sent_s + row.left_s
        self.why = self._objection(row)
        if not self.why:
            self.known = later(self.known, row.fence)
        wants = row.free and not self.why and ask.question is RowQuestion.READ
        wants = wants and now_s >= self.waits_until_s
        if wants:
            self._then(RowQuestion.TRY, now_s)
            return
        # The next look is no later than the end of the lease: a leader that stands still renews
        # nothing.
        pause_s = self.terms.poll_s
        if not row.free:
            pause_s = min(pause_s, max(LEAST_S, row.left_s))
        self._then(RowQuestion.READ, now_s + pause_s)

    def _renewed(self, ask: Ask, row: HeldLease, now_s: float) -> None:
        """It is ours. A database with one server confirms nothing: it may lose acknowledged work.
        This master is silent at once. Its process ends after the last third of the time, unless a
        second server is named before.
        """
        unsafe = self._unsafe(row)
        if unsafe and self.standing is Standing.LEADING:
            self.why = unsafe
            self._confirmed_s = min(self._confirmed_s, now_s - SPEAKS * self.terms.ttl_s)
            self._then(RowQuestion.RENEW, now_s + self.terms.poll_s)
        elif unsafe and self.standing is Standing.STANDBY:
            self.why = unsafe
            self._then(RowQuestion.READ, now_s + self.terms.poll_s)
        else:
            self.why = ""
            self._confirmed(ask)

    def _unsafe(self, row: HeldLease) -> str:
        return "" if row.synchronous or self.allow_async else ONE_SERVER

    def _confirmed(self, ask: Ask) -> None:
        """It is ours, counted from the question."""
        if self.standing is Standing.STANDBY:
            self.standing, self.leader, self.why = Standing.LEADING, "", ""
        self._confirmed_s = max(self._confirmed_s, ask.sent_s)
        self._then(RowQuestion.RENEW, ask.sent_s + self.terms.renew_s)

    def _objection(self, row: HeldLease) -> str:
        following = row.fence._replace(epoch=row.epoch + 1)  # what this master would be
        if row.system == self.known.system and row.epoch < self.known.epoch:
            return f"the database lost commits: epoch {row.epoch} after {self.known.epoch}"
        if refused := refusal(self.known, following, self.former):
            return f"the database is not the one of before: {refused}"
        if lacks := self._lacks(row):
            return lacks
        return self._unsafe(row)

    def _lacks(self, row: HeldLease) -> str:
        if row.turn >= self.turn:
            return ""
        last = f"its last turn is {row.turn}, and turn {self.turn} was seen"
        return f"the database lost commits: {last}"

    def _is_mine(self, row: HeldLease) -> bool:
        return row.holder == self.holder

    def _then(self, question: RowQuestion, at_s: float) -> None:
        self._next, self._due_s = question, at_s

    def _end(self, why: str) -> None:
        self.standing, self.why = Standing.OVER, why


def _lost(fence: LeaderFence, row: HeldLease) -> str:
    if (row.system, row.timeline) != (fence.system, fence.timeline):
        return f"the database is another one now: {row.system}/{row.timeline}"
    return f"another master leads, in epoch {row.epoch}, at {row.address}"


def carried_out(ask: Ask, lease: LeaderLease, row: LeaseRow, address: str) -> HeldLease:
    """The row's answer to a question. RowUnknown as the row."""
    match ask.question:
        case RowQuestion.READ:
            return row.read()
        case RowQuestion.TRY:
            return row.try_acquire(ask.fence.epoch, lease.holder, address, lease.terms.ttl_s)
        case RowQuestion.RENEW:
            return row.renew(ask.fence, lease.holder, lease.terms.ttl_s)
        case RowQuestion.RELEASE:
            return row.release(ask.fence, lease.holder)
