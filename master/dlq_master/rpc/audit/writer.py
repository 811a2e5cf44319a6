"""The thread that writes the audit's file: each line whole and in order, until the disk takes it.

A line is given to the kernel at once, and is on disk before a waiting caller is told. Lines that
are in the database are written together every half second: waking the thread for each would cost
more. After a failure everything since the last sync is cut off and written again. Until then lines
wait in memory, and lines of changes in the database too.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import AuditUnavailable
from dlq_common.text.instants import format_instant
from dlq_master.rpc.audit.chain import SEGMENT_BYTES, Chain, Head, hash_of
from dlq_master.rpc.audit.file import OpenFile
from dlq_master.rpc.audit.verify import MISSING, check_end, lines_after

SYNC_EVERY_S: Final = 0.5
RETRY_S: Final = 1.0
MOST_WAITING: Final = 10_000
MOST_TOGETHER: Final = 1_000  # lines wake the thread before their half second is over


class KnownHead(NamedTuple):
    """The database's record of the audit: its last line, and the lines of changes that
    it may lack.
    """

    head: Head = Head()
    owed: tuple[tuple[str, str], ...] = ()  # id and line


NOTHING_KNOWN: Final = KnownHead()


@dataclass(slots=True)
class _Entry:
    line: Mapping[str, object]
    note_id: str = ""  # the database has this line, until the file has it
    waiter: Future[None] | None = None


class AuditWriter:
    """Owns the chain. Any thread may add lines."""

    def __init__(self, path: Path, clock: Clock, known: KnownHead, open_file: OpenFile) -> None:
        self._path, self._clock, self._open_file = path, clock, open_file
        self._log = get_logger("master.audit")
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()  # that are not synced, the oldest first
        self._appended = 0  # of them
        self._sync_at_s = 0.0
        self._write_at_s = 0.0  # the others at the latest
        self._closing = False
        self._failure = ""
        self._head = known.head
        self._settled: list[
            str
        ] = []  # ids whose lines are on disk, and which the database has still
        self._known = known
        self._chain: Chain | None = None
        self.loss = ""  # what this start found missing
        try:
            self._open()
        except OSError as error:
            self._fail(error)
        self._thread = threading.Thread(target=self._run, name="audit")
        self._thread.start()

    # --- the doors ----------------------------------------------------------------------------

    @property
    def failure(self) -> str:
        """Why no line can be written; empty while lines are."""
        return self._failure

    @property
    def waiting(self) -> int:
        """The number of lines that are not on disk yet."""
        return len(self._entries)

    def check(self) -> None:
        """AuditUnavailable: no line can be written."""
        if self._failure:
            raise AuditUnavailable(
                f"changes are refused: the audit log cannot be written ({self._failure})",
                hint="make room, or mend the disk, on the master's host. Jobs run on, and changes "
                "are accepted as soon as the audit log can be written",
            )

    def put(self, line: Mapping[str, object], note_id: str = "") -> None:
        """Add a line. AuditUnavailable: too many are waiting."""
        self._put(_Entry(line, note_id))

    async def write(self, line: Mapping[str, object]) -> None:
        """Add a line and wait until it is on disk. AuditUnavailable: it is not."""
        self.check()
        waiter: Future[None] = Future()
        waiter.set_running_or_notify_cancel()  # a caller who leaves takes nothing from the thread
        self._put(_Entry(line, "", waiter))
        await asyncio.wrap_future(waiter)

    def written(self) -> tuple[str, tuple[str, ...]]:
        """The last line on disk, and the ids of lines that the database may delete."""
        with self._changed:
            return self._head.text(), tuple(self._settled)

    def forgotten(self, note_ids: tuple[str, ...]) -> None:
        """The database has deleted these lines."""
        with self._changed:
            gone = set(note_ids)
            self._settled = [one for one in self._settled if one not in gone]

    def close(self) -> None:
        """Write and sync the waiting lines, then stop. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                is_late = self._wait()
                closing = self._closing
                fresh = list(islice(self._entries, self._appended, None))
            try:
                self._append(fresh)
                if self._failure and not self._entries:
                    self._recover()
                if self._appended and (closing or is_late or self._is_sync_due()):
                    self._sync()
            except OSError as error:
                self._fail(error)
            if closing:
                break
        if self._entries:
            self._log.error("audit_lines_not_written", lines=len(self._entries))
        if self._chain is not None:
            self._chain.close()

    def _wait(self) -> bool:
        """Wait for work; whether the time for it has come."""
        while not self._is_due():
            if not self._changed.wait(self._patience_s()):
                return True
        return False

    def _is_due(self) -> bool:
        if self._closing or self._failure:
            return self._closing
        fresh = len(self._entries) - self._appended
        return fresh >= MOST_TOGETHER or (fresh > 0 and self._clock_s() >= self._write_at_s)

    def _patience_s(self) -> float | None:
        if self._failure:
            return RETRY_S
        ends_s = [self._sync_at_s] if self._appended else []
        if len(self._entries) > self._appended:
            ends_s.append(self._write_at_s)
        return max(0.0, min(ends_s) - self._clock_s()) if ends_s else None

    def _clock_s(self) -> float:
        return self._clock.boottime_s()

    def _append(self, fresh: list[_Entry]) -> None:
        if self._chain is None:
            self._open()
            return  # what is to be written first has just been put before the rest
        for entry in fresh:
            if not self._appended:
                self._sync_at_s = self._clock_s() + SYNC_EVERY_S
            self._chain.append(entry.line)
            self._appended += 1

    def _is_sync_due(self) -> bool:
        if self._failure or self._clock_s() >= self._sync_at_s:
            return True
        with self._changed:
            written = list(islice(self._entries, self._appended))
        return any(entry.waiter is not None for entry in written)

    def _sync(self) -> None:
        assert self._chain is not None
        self._chain.sync()
        with self._changed:
            done = [self._entries.popleft() for _ in range(self._appended)]
            self._appended = 0
            self._head = self._chain.head
            self._settled += [entry.note_id for entry in done if entry.note_id]
        for entry in done:
            if entry.waiter is not None:
                entry.waiter.set_result(None)
        if self._failure:
            self._recover()

    def _recover(self) -> None:
        self._log.info("audit_written_again", after=self._failure)
        self._failure = ""

    def _fail(self, error: OSError) -> None:
        """Write everything since the last sync again, and tell waiting callers."""
        if not self._failure:
            self._log.error("audit_not_written", error=str(error), lines=len(self._entries))
        self._failure = f"{self._path}: {error.strerror or error}"
        if self._chain is not None:
            self._chain.rewind()
        with self._changed:
            self._appended = 0
            waiting = [entry for entry in self._entries if entry.waiter is not None]
        for entry in waiting:
            waiter, entry.waiter = entry.waiter, None
            entry.line = {**entry.line, "decision": AuditUnavailable.reason}
            assert waiter is not None
            waiter.set_exception(_unavailable(self._failure))

    # --- helpers, in order of use -------------------------------------------------------------

    def _put(self, entry: _Entry) -> None:
        with self._changed:
            if len(self._entries) >= MOST_WAITING:
                raise _unavailable(self._failure or "too many lines wait")
            fresh = len(self._entries) - self._appended
            at_s = self._clock_s() + (SYNC_EVERY_S if entry.note_id else 0.0)
            is_first = not fresh or at_s < self._write_at_s
            self._write_at_s = at_s if is_first else self._write_at_s
            self._entries.append(entry)
            if is_first or fresh + 1 >= MOST_TOGETHER:
                self._changed.notify()

    def _open(self) -> None:
        """Open the files, report missing lines, and write the lines that the last
        master did not.
        """
        known = self._known
        loss = check_end(self._path, known.head)
        there = {line.get("id") for line in lines_after(self._path, known.head.lines)}
        self._chain = Chain(self._path, SEGMENT_BYTES, self._open_file)
        first = [*self._findings(self._chain, loss)]
        for note_id, text in known.owed:
            if note_id not in there:
                first.append(_Entry({**json.loads(text), "recovered": True}, note_id))
        with self._changed:
            self.loss = loss
            self._head = self._chain.head
            self._settled += [note_id for note_id, _ in known.owed if note_id in there]
            self._entries.extendleft(reversed(first))

    def _findings(self, chain: Chain, loss: str) -> Iterator[_Entry]:
        """Lines about the state in which the files were found."""
        if loss:
            self._log.error("audit_lines_lost", what=loss)
            known = self._known.head
            expected = {MISSING: known.lines, "expected_hash": known.last_hash}
            found = {"found_lines": chain.head.lines}
            yield _Entry({**self._own("LINES_LOST"), **expected, **found})
        if chain.torn:
            self._log.warning("audit_tail_healed", torn_bytes=len(chain.torn))
            facts = {"torn_bytes": len(chain.torn), "torn_sha256": hash_of(chain.torn)}
            yield _Entry({**self._own("HEALED"), **facts})

    def _own(self, decision: str) -> dict[str, object]:
        time = format_instant(self._clock.now_s())
        return {"time": time, "who": "", "method": "audit", "decision": decision}


def _unavailable(why: str) -> AuditUnavailable:
    return AuditUnavailable(
        f"the audit log cannot be written ({why}); the change may have been made all the same",
        hint="look before you repeat it; make room, or mend the disk, on the master's host",
    )
