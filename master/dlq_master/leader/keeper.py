"""The threads that keep the lease: one asks the row, apart from the master's loop and its writer.

A loop that plans for long, or a writer that waits for the disk, delays no renewal. The thread owns
the core; others read the instant until which this master may speak. A second thread watches: a line
that is half open may hold up the first one and the loop for ever.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.fence import LeaderFence
from dlq_common.identity.files import write_public
from dlq_master.leader.lease import Ask, LeaderLease, MasterPart, Standing, carried_out
from dlq_master.leader.row import HeldLease, RowSession, RowUnknown
from dlq_master.leader.turn_seen import NAME, TurnSeen, damaged

SEEN: Final = "leader-seen.json"  # in the state directory: the highest fence that was seen here
LOOK_S: Final = 0.1
EXIT_CODE: Final = 75
_leave: Final = os._exit
_SAYS_WHY: Final = {Standing.STANDBY: "cannot_lead", Standing.LEADING: "leader_is_silent"}

_log = get_logger("master.leader")


class LeaseKeeper:
    """Keeps one master's lease from `start` to `close`."""

    def __init__(
        self, lease: LeaderLease, row: RowSession, address: str, clock: Clock, state_dir: Path
    ) -> None:
        """`address`: where others reach this master."""
        self.lease = lease
        self._row, self._address, self._clock = row, address, clock
        self._path = state_dir / SEEN
        self.turns = TurnSeen(state_dir / NAME)
        self._stepping_down, self._closing = threading.Event(), threading.Event()
        self._asked: Ask | None = None
        self._changed: Callable[[], None] = lambda: None
        self.watched: Callable[[], None] = lambda: None
        self._since_s = clock.boottime_s()
        self._thread = self._made(self._run, "lease")
        self._watch = self._made(self._watch_all, "lease-watch")
        lease.known = read_seen(self._path)

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called in the thread, after each change of standing."""
        self._changed = changed
        self._thread.start()
        self._watch.start()

    @property
    def fence(self) -> LeaderFence:
        """Of the leadership."""
        return self.lease.fence

    def may_speak(self) -> bool:
        """Whether a command, a lease of a node, or an answer to a change may leave now."""
        return self.lease.may_speak(self._clock.boottime_s())

    def part(self, turn: int, read_ago_s: float, masters: tuple[str, ...]) -> MasterPart:
        """For people. `turn`: the last one that this master has committed, or read."""
        lease, now_s = self.lease, self._clock.boottime_s()
        leads = lease.standing is not Standing.STANDBY
        return MasterPart(
            address=self._address,
            leads=leads,
            held_s=now_s - self._since_s,
            leader=self._address if leads else lease.leader,
            fence=lease.fence if leads else lease.known,
            left_s=lease.left_s(now_s),
            turn=turn,
            read_ago_s=read_ago_s,
            why=lease.why,
            masters=masters,
        )

    def release(self) -> None:
        """Give the lease back: nothing will be written or said any more. Waits a moment for the
        database.
        """
        self._stepping_down.set()
        self._thread.join(2.0)

    def close(self) -> None:
        """End the thread and its session."""
        self._closing.set()
        self._row.abandon()
        self._thread.join(2.0)
        self._watch.join(2.0)
        self.turns.close()

    # --- the threads --------------------------------------------------------------------------

    def _made(self, work: Callable[[], None], name: str) -> threading.Thread:
        """A master whose thread has failed would neither lead nor end: its process ends."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a thread that ends by it ends in silence
                _log.error("lease_thread_failed", thread=name, cause=repr(error), exc_info=True)
                if not self._closing.is_set():
                    self._end(f"its thread {name} has failed")

        return threading.Thread(target=guarded, name=name, daemon=True)

    def _watch_all(self) -> None:
        """The process ends when the lease is over. So does a question that the database does not
        answer. `watched` looks after lines of others.
        """
        while not self._closing.wait(LOOK_S):
            self._look()
            self.watched()

    def _look(self) -> None:
        now_s, asked = self._clock.boottime_s(), self._asked
        if not self._stepping_down.is_set() and self.lease.is_over(now_s):
            self._end()
        if asked is not None and now_s - asked.sent_s > self.lease.terms.ttl_s:
            self._row.abandon()

    def _run(self) -> None:
        standing, why, seen = self.lease.standing, "", self.lease.known
        while not self._closing.is_set():
            now_s = self._clock.boottime_s()
            if self._stepping_down.is_set():
                self.lease.step_down(now_s)
            if self.lease.is_over(now_s):
                break
            self._ask_or_wait(now_s)
            if self.lease.known != seen:
                seen = self.lease.known
                self._remember(seen)
            if self.lease.why != why and self.lease.standing in _SAYS_WHY:
                why = self.lease.why
                if why:
                    _log.error(_SAYS_WHY[self.lease.standing], cause=why)
            if self.lease.standing is not standing:
                standing, self._since_s = self.lease.standing, self._clock.boottime_s()
                self._changed()
        if self.lease.standing is Standing.OVER and not self._stepping_down.is_set():
            self._end()
        self._row.close()
        self._changed()

    def _ask_or_wait(self, now_s: float) -> None:
        ask = self.lease.due(now_s)
        if ask is None:
            pause_s = max(0.001, min(LOOK_S, self.lease.due_s() - now_s))
            if not self._row.wait(pause_s):
                self.lease.session_lost(self._clock.boottime_s())
            return
        self._asked = ask
        try:
            told = carried_out(ask, self.lease, self._row, self._address)
        except RowUnknown as error:
            self._asked = None
            self.lease.unknown(ask, self._clock.boottime_s())
            _log.warning("lease_unknown", question=ask.question.value, cause=str(error))
        else:
            self._asked = None
            self._answered(ask, told)

    def _answered(self, ask: Ask, told: HeldLease) -> None:
        """A standby refuses a database that lacks a turn, before it takes the lease there."""
        self.lease.turn = self.turns.of(told.system)
        self.lease.answered(ask, told, self._clock.boottime_s())
        if self.lease.standing is Standing.STANDBY and not self.lease.why:
            self.turns.follow(told.system)
            self.turns.note(told.turn, told.system)

    def _remember(self, seen: LeaderFence) -> None:
        try:
            write_public(self._path, json.dumps(seen._asdict()).encode())
        except OSError as error:  # a full disk ends no leader
            _log.error("leader_not_kept", file=str(self._path), cause=str(error))

    def _end(self, words: str = "leads no more") -> None:
        """The lease is over: nobody may hear anything of this process any more."""
        sys.stderr.write(f"dlq-master: {words}: {self.lease.why}\n")
        sys.stderr.flush()
        _leave(EXIT_CODE)


def read_seen(path: Path) -> LeaderFence:
    """The highest fence that this master has seen in earlier lives. Raises DatabaseDamaged for a
    file that the disk has changed, and OSError.
    """
    try:
        fence = LeaderFence(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return LeaderFence()
    except (ValueError, TypeError):
        raise damaged(path) from None
    if tuple(map(type, fence)) != (str, int, int):
        raise damaged(path)
    return fence
