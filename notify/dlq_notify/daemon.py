"""The loop of `dlq-notify`: events into the database, and letters out of it.

One thread owns the database. Another one reads events, and a few send. Nothing is sent by rules
that were read more than a minute ago: a user may have removed one, or may have been removed. When
the disk is full nothing is taken and nothing is sent, until it can be written again.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from contextlib import suppress
from typing import NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.systemd import Service
from dlq_common.errors import CursorExpired, DlqError
from dlq_notify.config import NotifyConfig
from dlq_notify.gathering import START_MOVED, Gathering
from dlq_notify.line import EventBatch, EventReader, NotifierLine
from dlq_notify.rules import RuleBook
from dlq_notify.sending import Sending
from dlq_notify.store import NotifyStore

STEP_S = 0.5
MOST_AT_ONCE = 32  # batches of one step
MOST_UNTAKEN = 16  # batches: the reader waits then, and the master keeps the rest
RULES_EVERY_S, RULES_GOOD_FOR_S = 30.0, 60.0
TIDY_EVERY_S = 600.0
AFTER_A_FAULT_S = 5.0


class ReaderLost(NamedTuple):
    """The reader could not go on."""

    reader: EventReader
    error: DlqError


class NotifyDaemon:
    """Runs until it is told to stop."""

    def __init__(
        self,
        config: NotifyConfig,
        store: NotifyStore,
        line: NotifierLine,
        sending: Sending,
        clock: Clock,
        service: Service,
    ) -> None:
        self._settings, self._store, self._line = config.notify, store, line
        self._sending, self._clock, self._service = sending, clock, service
        self._gathering = Gathering(store, config.notify)
        self._book = RuleBook()
        self._reader: EventReader | None = None
        self._inbox: queue.Queue[tuple[EventReader, EventBatch] | ReaderLost] = queue.Queue(
            MOST_UNTAKEN
        )
        self._pending: tuple[EventReader, EventBatch] | None = None  # not in the database yet
        self._rules_due_s = self._starts_due_s = self._tidy_due_s = float("-inf")
        self._faulty = False
        self._stop = threading.Event()
        self._log = get_logger("notify")

    def stop(self) -> None:
        """From any thread, or from a signal."""
        self._stop.set()

    def run(self) -> None:
        """Serve until `stop`."""
        self._service.ready("follows the events of the master")
        while not self._stop.is_set():
            self._service.alive()
            try:
                self.step()
            except sqlite3.Error as error:
                self._say_fault("database_not_written", error)
                self._stop.wait(AFTER_A_FAULT_S)
            except DlqError as error:
                self._say_fault("master_not_read", error)
                self._stop.wait(self._service.patience_s(AFTER_A_FAULT_S))
            else:
                self._faulty = False
        self._service.stopping()
        if self._reader is not None:
            self._reader.stop()
        with suppress(sqlite3.Error):
            self._sending.close()

    def step(self) -> None:
        """Take what has come, then send what is due. Raises sqlite3.Error and DlqError, and goes on
        where it was when it is called again.
        """
        self._keep_rules()
        self._take(STEP_S)
        now_s = self._clock.now_s()
        self._look_at_starts(now_s)
        self._gathering.close_due(self._book, now_s)
        self._sending.collect()
        if self._age_s() <= RULES_GOOD_FOR_S:
            self._sending.begin_due(self._book)
        if self._clock.boottime_s() >= self._tidy_due_s:
            self._tidy_due_s = self._clock.boottime_s() + TIDY_EVERY_S
            with self._store.write():
                self._store.mend_clock(now_s)
                self._store.forget(now_s, self._settings.keep_dead)

    # --- helpers, in order of use -----------------------------------------------------------------

    def _keep_rules(self) -> None:
        """Read the rules now and then, and whenever the events say that they change."""
        changes = self._pending is not None and self._pending[1].changes_rules
        due = self._clock.boottime_s() >= self._rules_due_s
        if not due and not changes and self._reader is not None:
            return
        self._keep_certificate()
        try:
            read = self._line.rules()
        except DlqError as error:
            if self._reader is None or changes:
                raise
            self._say_fault("master_not_read", error)
            self._rules_due_s = self._clock.boottime_s() + AFTER_A_FAULT_S
            return
        with self._store.write():
            self._store.keep_rules(set(read.book.by_id))
        self._book = read.book
        self._rules_due_s = self._clock.boottime_s() + RULES_EVERY_S
        self._follow(read.cursor)

    def _keep_certificate(self) -> None:
        """Without a new one the present one serves to its end."""
        try:
            if self._line.renew_in_time():
                self._log.info("certificate_renewed")
        except (DlqError, OSError) as error:
            self._say_fault("certificate_not_renewed", error)

    def _follow(self, newest: int) -> None:
        """Have a reader at the right place. `newest`: the newest event that the master has."""
        cursor = self._store.cursor
        if cursor is None:
            cursor = newest  # from now on
            with self._store.write():
                self._store.set_cursor(cursor)
        elif cursor > newest:
            what = (
                f"the master was restored from a copy: its newest event is {newest}, not {cursor}"
            )
            self._begin_anew(newest, what)
            cursor = newest
        if self._reader is None:
            self._reader = EventReader(self._line, cursor, self._handed, self._cannot)

    def _begin_anew(self, cursor: int, what: str) -> None:
        self._log.error("events_lost", what=what)
        self._gathering.lost(f"events are lost: {what}", cursor, self._book, self._clock.now_s())
        if self._reader is not None:
            self._reader.stop()
        self._reader = self._pending = None

    def _take(self, wait_s: float) -> None:
        """Take what has come, up to some batches; wait for the first one."""
        for _ in range(MOST_AT_ONCE):
            if self._pending is None:
                try:
                    told = self._inbox.get(timeout=self._service.patience_s(wait_s))
                except queue.Empty:
                    return
                if isinstance(told, ReaderLost):
                    self._lose(told)
                    return
                self._pending = told
            wait_s = 0.001
            self._take_pending()

    def _take_pending(self) -> None:
        """The rules first, if the batch says that they change: a user who is gone hears nothing."""
        if self._pending is not None and self._pending[1].changes_rules:
            self._keep_rules()
        if self._pending is not None and self._pending[0] is self._reader:
            batch = self._pending[1]
            self._gathering.take(batch.told, batch.cursor, self._book, self._clock.now_s())
        self._pending = None

    def _lose(self, told: ReaderLost) -> None:
        if told.reader is not self._reader:
            return
        if not isinstance(told.error, CursorExpired):
            self._say_fault("events_not_read", told.error)
            return
        newest = self._line.rules().cursor
        cursor = self._store.cursor or 0
        self._begin_anew(newest, f"those from {cursor} to {newest} were cut from the journal")
        self._follow(newest)

    def _look_at_starts(self, now_s: float) -> None:
        if self._clock.boottime_s() < self._starts_due_s:
            return
        self._starts_due_s = self._clock.boottime_s() + self._settings.look_at_starts
        if next(self._book.with_word(START_MOVED), None) is not None:
            self._gathering.moves(self._line.starts(), self._book, now_s)

    def _age_s(self) -> float:
        return self._clock.boottime_s() - self._book.read_s

    def _handed(self, reader: EventReader, batch: EventBatch) -> None:
        """In the reader's thread: blocks while much is untaken."""
        while not reader.stopped and not self._stop.is_set():
            with suppress(queue.Full):
                self._inbox.put((reader, batch), timeout=STEP_S)
                return

    def _cannot(self, reader: EventReader, error: DlqError) -> None:
        """In the reader's thread."""
        while not reader.stopped and not self._stop.is_set():
            with suppress(queue.Full):
                self._inbox.put(ReaderLost(reader, error), timeout=STEP_S)
                return

    def _say_fault(self, event: str, error: Exception) -> None:
        """Once for each trouble: it may last."""
        if not self._faulty:
            self._log.error(event, error=str(error))
        self._faulty = True
