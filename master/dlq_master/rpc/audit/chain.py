"""The files of the audit: each line carries the hash of the line before it, across files.

The newest lines are in `audit.jsonl`. When it is long it becomes `audit.000001.jsonl` (and so on).
The new file begins with an anchor: the hash of the last line before it, and the number of lines so
far. So old files may be archived or deleted, and the rest is still verified from its anchor on.

A line is in the file whole or not at all. After a failed write an incomplete line is cut off before
the next line. After a crash it is cut off before the first line of the next start, which says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlq_common.daemon.logs import get_logger
from dlq_master.rpc.audit.file import DiskFile, OpenFile
from dlq_master.store.sqlite.open import sync

FIRST_HASH: Final = "0" * 64
SEGMENT_BYTES: Final = 64 * 1024 * 1024
ANCHOR: Final = "anchor"  # key of the first line of a file that follows another: its name


class Head(NamedTuple):
    """The last line of a chain: its number, counted from the first line ever, and its hash."""

    lines: int = 0
    last_hash: str = FIRST_HASH

    def text(self) -> str:
        """The head as the database stores it."""
        return f"{self.lines} {self.last_hash}"

    @classmethod
    def read(cls, text: str | None) -> Head:
        """The head from the database; line 0 if it has none."""
        lines, _, last_hash = (text or "").partition(" ")
        return cls(int(lines), last_hash) if last_hash else cls()


class _Mark(NamedTuple):
    """A place in the newest file up to which it is known to be good."""

    end: int  # bytes of the file
    head: Head


class Chain:
    """Appends to the newest file, and starts another when it is long enough. Used by one thread.

    After an OSError call `rewind`, and append everything again that was not synced: the state of
    the disk is unknown.
    """

    def __init__(
        self, path: Path, segment_bytes: int = SEGMENT_BYTES, open_file: OpenFile = DiskFile
    ) -> None:
        """OSError: the file cannot be opened or read."""
        self._path = path
        self._segment_bytes = segment_bytes
        self._open_file = open_file
        self._log = get_logger("master.audit")
        self._file = open_file(path)
        tail = _tail_of(path)
        self._synced = self._now = _Mark(tail.end, tail.head)
        self._torn = self._file.size() > tail.end  # bytes after the mark are to be cut off
        self.torn = tail.torn  # what lay behind the last whole line when it was opened

    @property
    def head(self) -> Head:
        """The last line that is known to be on disk."""
        return self._synced.head

    def append(self, line: Mapping[str, object]) -> None:
        """Write one line. OSError: the disk does not take it."""
        self._cut()
        if self._now.end >= self._segment_bytes:
            self._turn_over()
        if self._now.end == 0:
            self._anchor()
        self._write(line)

    def sync(self) -> None:
        """Wait until appended lines are on disk. OSError: possibly none of them is."""
        self._file.sync()
        self._synced = self._now

    def rewind(self) -> None:
        """Go back to the last synced line. The file is cut before the next line at the latest."""
        self._now, self._torn = self._synced, True
        try:
            self._cut()
        except OSError as error:
            self._log.warning("audit_not_cut", error=str(error))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _cut(self) -> None:
        if self._torn:
            self._file.truncate(self._now.end)
            self._torn = False

    def _write(self, line: Mapping[str, object]) -> None:
        head = self._now.head
        text = _encode({**line, "before": head.last_hash}).encode()
        self._torn = True  # until all of it is there
        left = text + b"\n"
        while left:
            taken = self._file.append(left)
            if taken <= 0:
                raise OSError("the disk took nothing of a line")
            left = left[taken:]
        self._torn = False
        self._now = _Mark(self._now.end + len(text) + 1, Head(head.lines + 1, hash_of(text)))

    def _turn_over(self) -> None:
        """Number the present file, and start a new one behind it. A failed step is repeated with
        the next line.
        """
        self.sync()
        if self._path.exists():
            numbered = _numbered(self._path)
            os.rename(self._path, numbered)
            # A copy of the log elsewhere can prove by this what the audit was.
            last_hash = self._now.head.last_hash
            self._log.info("audit_segment_closed", file=numbered.name, last_hash=last_hash)
        old = self._file
        self._file = self._open_file(self._path)
        self._synced = self._now = _Mark(0, self._now.head)
        old.close()
        sync(self._path.parent)

    def _anchor(self) -> None:
        """Write the first line of a later file; also after a crash between two files."""
        older = segments(self._path)[:-1]
        if older:  # else it is the first
            self._write({ANCHOR: older[-1].name, "lines": self._now.head.lines})


_encode = json.JSONEncoder(separators=(",", ":")).encode


def segments(path: Path) -> list[Path]:
    """The files of the chain on this disk, the oldest first; the newest may not exist yet."""
    older = path.parent.glob(f"{path.stem}.[0-9]*{path.suffix}")
    return [*sorted(older), path]


def parsed(text: bytes) -> dict[str, Any]:
    """A line as an object; empty if it is none."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def hash_of(text: bytes) -> str:
    """The hash of a line without its line end, which the next line carries."""
    return hashlib.sha256(text).hexdigest()


class _Tail(NamedTuple):
    """The end of the whole lines in the newest file, and the bytes behind it."""

    end: int
    head: Head
    torn: bytes  # of a line that was not finished


def _tail_of(path: Path) -> _Tail:
    end, own, first, last, torn = 0, 0, b"", b"", b""
    with path.open("rb") as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                torn = raw
                break
            first = first or raw
            end, own, last = end + len(raw), own + 1, raw
    if own:
        head = Head(_lines_before(first) + own, hash_of(last.rstrip(b"\n")))
    else:
        older = segments(path)[:-1]
        head = _tail_of(older[-1]).head if older and path not in older else Head()
    return _Tail(end, head, torn)


def _lines_before(first: bytes) -> int:
    """The number of lines in the files before one with this first line."""
    line = parsed(first.rstrip(b"\n"))
    return int(line.get("lines", 0)) if ANCHOR in line else 0


def _numbered(path: Path) -> Path:
    """The next file name. Numbers go on after old files are removed, and names sort by them."""
    names = [file.name for file in segments(path)[:-1]]
    with path.open("rb") as file:
        names.append(str(parsed(file.readline().rstrip(b"\n")).get(ANCHOR, "")))
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+){re.escape(path.suffix)}")
    taken = [int(found[1]) for name in names if (found := pattern.fullmatch(name))]
    return path.with_name(f"{path.stem}.{max(taken, default=0) + 1:06d}{path.suffix}")
