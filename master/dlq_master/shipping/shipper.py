"""One cycle of the shipping: all commits since the last one go to the other place.

A chain begins with a snapshot, and a segment follows for each cycle that found commits. A chain
whose next pages cannot be found any more, and one that has grown long, are followed by a new
snapshot. Nothing here waits for the master, and the master waits for nothing here.

The order within a cycle: the audit, which may be ahead of the database and never behind; the
segment; the heartbeat. A crash between any two of them leaves a chain that can be recovered.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from dlq_common.clock import Clock
from dlq_master.shipping.container import SEGMENT, SNAPSHOT, ShippedFacts, packed, pages_of, pieces
from dlq_master.shipping.log import (
    FRAME_HEADER_BYTES,
    ChangedPages,
    Extent,
    LogIndex,
    LogMoved,
    read_pages,
    sealed_extent,
)
from dlq_master.shipping.place import (
    HEARTBEAT,
    OWNER,
    UNFINISHED,
    ShippingPlace,
    ShippingRefused,
    epoch_of,
    folder_of,
)
from dlq_master.shipping.status import ShippingStatus
from dlq_master.store.sqlite.open import connect

SEALED: Final = "shipping"  # folder of the state directory: copies of logs that began anew
KEPT_EPOCHS: Final = 2
_AUDIT_PIECE: Final = 1 << 20
_LEAST_CHAIN_BYTES: Final = 16 << 20  # segments of so many bytes are no reason for a snapshot


class Superseded(Exception):
    """A master of a higher epoch owns the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The work of one shipping process. `token`: of this life of the master."""

    state_dir: str
    system: str
    epoch: int
    token: str
    host: str
    every_s: float
    snapshot_every_s: float
    files: dict[str, str]  # small files that go along, by their names there


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Of a master that ships. `sequence` is its last file; `stopped`: it has ended in order."""

    count: int = 0
    time_s: float = 0.0
    complete_s: float = 0.0
    sequence: int = 0
    every_s: float = 1.0
    stopped: bool = False


@dataclass(slots=True)
class _Chain:
    """Where the shipping stands in the log, and in the place."""

    extent: Extent | None = None  # shipped up to here; None: a snapshot is due
    previous: str = ""
    page_bytes: int = 0
    snapshot: int = 0  # sequence of the last one
    snapshot_bytes: int = 0
    snapshot_s: float = 0.0
    segment_bytes: int = 0


class Shipper:
    """Ships one database. `passed` is told each step, so that a test can end the process there."""

    def __init__(
        self,
        assignment: Assignment,
        place: ShippingPlace,
        clock: Clock,
        passed: Callable[[str], object] = lambda _step: None,
    ) -> None:
        self._job, self._place, self._clock, self._passed = assignment, place, clock, passed
        self._state_dir = Path(assignment.state_dir)
        self._database = self._state_dir / "dlq.db"
        self._folder = folder_of(assignment.epoch)
        self._index = LogIndex(self._database)
        self._log = os.open(f"{self._database}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._chain = _Chain()
        self._sequence = 0
        self._is_owner = False
        self._audit: dict[str, int] = {}
        self._files: dict[str, tuple[int, int, int]] = {}
        self._since_s = clock.now_s()
        self._beat = Heartbeat(every_s=assignment.every_s)

    def cycle(self, *, is_last: bool = False) -> ShippingStatus:
        """Ship what there is. Raises OSError when the place or the disk cannot take it,
        ShippingRefused and Superseded; the next cycle tries again where this one was.
        """
        began_s = self._clock.now_s()
        if not self._is_owner:
            self._own()
        self._ship_files()
        self._stand_back()
        try:
            if self._chain.extent is None or self._is_long():
                self._ship_snapshot()
            else:
                self._ship_segment(began_s)
        except LogMoved as moved:
            self._chain.extent = None
            return self.status(f"{moved}: a snapshot follows")
        self._beat = replace(
            self._beat,
            count=self._beat.count + 1,
            time_s=self._clock.now_s(),
            complete_s=max(began_s, self._beat.complete_s),
            sequence=self._sequence,
            stopped=is_last,
        )
        self._passed("before_heartbeat")
        self._place.note(f"{self._folder}/{HEARTBEAT}", json.dumps(asdict(self._beat)).encode())
        return self.status()

    def status(self, failure: str = "") -> ShippingStatus:
        """How far the shipping is."""
        return ShippingStatus(
            time_s=self._clock.now_s(),
            since_s=self._since_s,
            complete_s=self._beat.complete_s,
            behind_bytes=self._behind_bytes(),
            epoch=self._job.epoch,
            sequence=self._sequence,
            failure=failure,
        )

    # --- whose place it is --------------------------------------------------------------------

    def _own(self) -> None:
        """Be the one process that ships for this epoch."""
        folders = self._place.names("")
        for folder in folders[-1:]:
            system = json.loads(self._place.read(f"{folder}/{OWNER}") or b"{}").get("system")
            if system not in (None, self._job.system):
                raise ShippingRefused("the place holds the shipped master of another cluster")
        self._stand_back()
        mine = {
            "system": self._job.system,
            "epoch": self._job.epoch,
            "token": self._job.token,
            "host": self._job.host,
            "time_s": self._clock.now_s(),
        }
        name = f"{self._folder}/{OWNER}"
        if not self._place.create(name, json.dumps(mine).encode()):
            owner = json.loads(self._place.read(name) or b"{}")
            if owner.get("token") != self._job.token:
                raise ShippingRefused(
                    f"another master of epoch {self._job.epoch}, on {owner.get('host')}, "
                    "ships to this place"
                )
        # Of a process of ours that has died: it may have shipped before.
        self._sequence = max(map(_named, self._place.names(self._folder)), default=0)
        self._files = {}
        self._ship_files()
        self._is_owner = True

    def _ship_files(self) -> None:
        """The small files, those alone that have changed: the CA may change while a master runs."""
        for there, here in self._job.files.items():
            if not (file := Path(here)).exists():
                continue  # only some clusters have it
            facts = file.stat()
            state = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if self._files.get(there) != state:
                self._place.put(f"{self._folder}/{there}", [file.read_bytes()])
                self._files[there] = state

    def _stand_back(self) -> None:
        """Raises Superseded when a master of a higher epoch is, or was, here."""
        higher = [one for one in self._place.names("") if epoch_of(one) > self._job.epoch]
        for folder in higher:
            if owner := self._place.read(f"{folder}/{OWNER}"):  # else it is being made
                host = json.loads(owner).get("host", "another host")
                raise Superseded(f"epoch {epoch_of(folder)}, on {host}")

    # --- a snapshot, and what follows it ------------------------------------------------------

    def _is_long(self) -> bool:
        chain, now_s = self._chain, self._clock.boottime_s()
        if not chain.segment_bytes:
            return False
        if now_s - chain.snapshot_s >= self._job.snapshot_every_s:
            return True
        return chain.segment_bytes > max(_LEAST_CHAIN_BYTES, 2 * chain.snapshot_bytes)

    def _ship_snapshot(self) -> None:
        """A copy of the database, and the segment that makes it one of a single instant.

        The copy is of some commit between two positions of the log. All pages that changed between
        them follow in the segment, so that both together are the later position.
        """
        before_s, sequence = self._clock.now_s(), self._sequence + 1
        start = self._index.now()
        self._forget_sealed()
        copy = self._state_dir / SEALED / "snapshot.db"
        pages, page_bytes = self._copy_database(copy)
        facts = self._facts(SNAPSHOT, sequence, "", page_bytes, pages, before_s)
        name = f"{self._folder}/{sequence:012d}.{SNAPSHOT}"
        parts = _Counted(packed(facts, pieces(copy)))
        self._passed("before_snapshot")
        self._place.put(name, parts, settled=False)
        copy.unlink()
        self._passed("after_snapshot_written")
        chain = _Chain(start, parts.last.hex(), page_bytes, snapshot=sequence)
        self._sequence, self._chain = sequence, chain
        try:
            self._ship_segment(self._clock.now_s(), is_bridge=True)
            self._passed("before_snapshot_name")
            self._place.settle(name)
        except BaseException:
            chain.extent = None
            with suppress(OSError):  # it gives its room back
                self._place.drop(name + UNFINISHED)
            raise
        chain.snapshot_bytes, chain.snapshot_s = parts.bytes, self._clock.boottime_s()
        chain.segment_bytes = 0
        self._passed("after_snapshot_name")
        self._drop_old()

    def _copy_database(self, copy: Path) -> tuple[int, int]:
        """A consistent copy on this disk, gone again soon; its pages, and their size."""
        copy.unlink(missing_ok=True)
        copy.touch(mode=0o600)
        try:
            with closing(connect(self._database)) as living, closing(sqlite3.connect(copy)) as db:
                db.execute("PRAGMA synchronous = OFF")
                living.backup(db)
                (pages,) = db.execute("PRAGMA page_count").fetchone()
                (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        except sqlite3.Error as error:
            raise OSError(f"{copy}: {error}") from error
        return int(pages), int(page_bytes)

    def _ship_segment(self, now_s: float, *, is_bridge: bool = False) -> None:
        """All pages behind the position of the chain, if there are any, or to end a snapshot."""
        chain = self._chain
        pages, extent, sealed = self._advance()
        if pages.content or is_bridge:
            self._ship_audit()
            sequence = self._sequence + 1
            count = pages.page_count  # 0 in a bridge over no commit: the snapshot's
            facts = self._facts(SEGMENT, sequence, chain.previous, chain.page_bytes, count, now_s)
            parts = _Counted(packed(facts, pages_of(pages)))
            self._passed("before_segment")
            name = f"{self._folder}/{sequence:012d}.{SEGMENT}"
            self._place.put(name, parts, settled=False)
            self._passed("after_segment_written")
            self._place.settle(name)
            self._passed("after_segment_name")
            self._sequence, chain.previous = sequence, parts.last.hex()
            chain.segment_bytes += parts.bytes
        chain.extent = extent
        for file in sealed:
            file.unlink(missing_ok=True)

    def _facts(
        self, kind: str, sequence: int, previous: str, page_bytes: int, count: int, time_s: float
    ) -> ShippedFacts:
        return ShippedFacts(
            kind=kind,
            system=self._job.system,
            epoch=self._job.epoch,
            sequence=sequence,
            previous=previous,
            page_bytes=page_bytes,
            page_count=count,
            time_s=time_s,
        )

    # --- the log ------------------------------------------------------------------------------

    def _advance(self) -> tuple[ChangedPages, Extent, list[Path]]:
        """All pages behind the position of the chain, the position then, and the copies of former
        logs that were read. Raises LogMoved when a commit is missing: SQLite counts them.
        """
        at = self._chain.extent
        assert at is not None
        pages, read, start = ChangedPages(), sorted((self._state_dir / SEALED).glob("*.wal")), at
        for file in read:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                at = _read_on(handle, at, sealed_extent(handle), pages)
            finally:
                os.close(handle)
        # After the copies: so it is never older than they are.
        living = self._index.now()
        _read_on(self._log, at, living, pages)
        if self._index.now().salts != living.salts:
            raise LogMoved("the log has begun anew meanwhile")
        if (living.commits - start.commits) % (1 << 32) != pages.commits:
            raise LogMoved("commits are missing")
        return pages, living, read

    def _behind_bytes(self) -> int:
        """Of commits that are not shipped yet; of copies too."""
        try:
            living, at = self._index.now(), self._chain.extent
        except LogMoved:
            return 0
        done = at.frames if at is not None and at.salts == living.salts else 0
        behind = max(0, living.frames - done) * (FRAME_HEADER_BYTES + living.page_bytes)
        for file in (self._state_dir / SEALED).glob("*.wal"):
            with suppress(OSError):
                behind += file.stat().st_size
        return behind

    def _forget_sealed(self) -> None:
        for file in (self._state_dir / SEALED).glob("*.wal"):
            file.unlink(missing_ok=True)

    # --- what goes along ----------------------------------------------------------------------

    def _ship_audit(self) -> None:
        """New bytes of the audit's files, before the commits that know of them."""
        for file in sorted(self._state_dir.glob("audit*.jsonl")):
            name, there = f"{self._folder}/{file.name}", self._audit.get(file.name, 0)
            size = file.stat().st_size
            if not 0 < there <= size:  # new here, or begun anew under this name
                self._place.put(name, _beginning(file, 0, size))
            else:
                for piece in _beginning(file, there, size):
                    self._place.append(name, there, piece)
                    there += len(piece)
            self._audit[file.name] = size
        self._passed("after_audit")

    def _drop_old(self) -> None:
        """Older chains of this epoch but one, and older epochs: no recovery needs them."""
        for folder in self._place.names("")[:-KEPT_EPOCHS]:
            self._place.drop(folder)
        names = self._place.names(self._folder)
        snapshots = sorted(_named(name) for name in names if name.endswith(f".{SNAPSHOT}"))
        for name in names if len(snapshots) > 1 else ():
            if 0 < _named(name) < snapshots[-2]:
                self._place.drop(f"{self._folder}/{name}")


class _Counted:
    """Parts of a file, with their bytes and the last one."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self.bytes = 0
        self.last = b""

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self.bytes += len(part)
            self.last = part
            yield part


def _read_on(handle: int, at: Extent, found: Extent, pages: ChangedPages) -> Extent:
    """Add what a log holds behind a position in it, or all of it where it is the next one. Raises
    LogMoved where it is neither.
    """
    if found.salts == at.salts:
        if found.frames > at.frames:
            read_pages(handle, found, at.frames, pages)
        return found
    if at.frames and not found.follows(at.salts):
        raise LogMoved("a part of the log is missing")
    read_pages(handle, found, 0, pages)
    return found


def _beginning(file: Path, at: int, size: int) -> Iterator[bytes]:
    """The bytes of a growing file from `at` to `size`."""
    with file.open("rb") as lines:
        lines.seek(at)
        while at < size and (piece := lines.read(min(_AUDIT_PIECE, size - at))):
            yield piece
            at += len(piece)


def _named(file: str) -> int:
    """The sequence in the name of a file; 0: it has none."""
    number = file.partition(".")[0]
    return int(number) if number.isdecimal() else 0
