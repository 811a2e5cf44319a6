"""The audit's files: each line carries the hash of the one before it, from file to file.

The newest lines are in `audit.jsonl`. When it is long it becomes `audit.000001.jsonl` (and so on), and
a new one begins with an anchor: the hash of the last line before it, and how many lines that were. So
old files may be taken to an archive, or away: what is left is still verified, from its anchor on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from dlq_common.logs import get_logger
from dlq_master.store.open import sync

LONGEST_LINE: Final = 16 * 1024
FIRST_HASH: Final = "0" * 64
SEGMENT_BYTES: Final = 64 * 1024 * 1024
ANCHOR: Final = "anchor"  # key of the first line of a file that follows another: its name


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that does not follow from the one before it."""

    file: str
    line: int  # from 1
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at the whole chain found."""

    lines: int
    missing: int  # lines before the first file that is here, by its anchor
    broken: tuple[Broken, ...]


class Chain:
    """Appends to the newest file, and begins another when it is long enough. One thread's."""

    def __init__(self, path: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._path = path
        self._segment_bytes = segment_bytes
        self._log = get_logger("master.audit")
        self._file, self._last_hash = _open(path)

    def append(self, line: Mapping[str, object]) -> None:
        """Write one line. OSError when the disk does not take it."""
        if self._file.tell() >= self._segment_bytes:
            self._turn_over()
        if self._file.tell() == 0:
            self._anchor()
        self._write(line)

    def _write(self, line: Mapping[str, object]) -> None:
        text = json.dumps({**line, "before": self._last_hash}, separators=(",", ":")).encode()
        self._file.write(text + b"\n")
        self._last_hash = _hash(text)

    def sync(self) -> None:
        """Wait until what was appended is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _turn_over(self) -> None:
        """The file at hand gets its number, and a new one begins where it ends.

        A step that fails is tried again with the next line.
        """
        self.sync()
        if self._path.exists():
            numbered = _numbered(self._path)
            os.rename(self._path, numbered)
            # Whoever keeps the log elsewhere can prove by this what the audit was.
            self._log.info("audit_segment_closed", file=numbered.name, last_hash=self._last_hash)
        old = self._file
        self._file, _ = _open(self._path)
        old.close()
        sync(self._path.parent)

    def _anchor(self) -> None:
        """The first line of a file that is not the first; also after a crash between two files."""
        older = segments(self._path)[:-1]
        if older:
            self._last_hash = _tail_hash(older[-1])
            self._write({ANCHOR: older[-1].name, "lines": _lines_of(older[-1])})


def segments(path: Path) -> list[Path]:
    """The files of the chain that are here, the oldest first, the newest (which may be new) last."""
    older = path.parent.glob(f"{path.stem}.[0-9]*{path.suffix}")
    return [*sorted(older), path]


def verify(path: Path) -> list[int]:
    """Numbers (from 1) of the lines of one file that do not follow from the line before them."""
    return [number for number, follows, _, _ in _read(path, None) if not follows]


def verify_all(path: Path) -> Verdict:
    """The whole chain, of which `path` is the newest file."""
    lines, missing = 0, 0
    broken: list[Broken] = []
    before: str | None = None
    for file in segments(path):
        for number, follows, text_hash, line in _read(file, before):
            lines += 1
            if not follows:
                what = "the line before it" if number > 1 else "the last line of the file before it"
                broken.append(Broken(file.name, number, f"does not follow from {what}"))
            if number == 1 and before is None:
                missing = int(line.get("lines", 0)) if ANCHOR in line else 0
            before = text_hash
    return Verdict(lines, missing, tuple(broken))


def _read(path: Path, before: str | None) -> Iterator[tuple[int, bool, str, dict[str, Any]]]:
    """Each line's number, whether it follows, its hash, and itself; `before` None: trust an anchor."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            text = raw.rstrip(b"\n")
            line = _parsed(text)
            if before is None:
                before = line.get("before", "") if ANCHOR in line else FIRST_HASH
            follows = line.get("before") == before
            before = _hash(text)
            yield number, follows, before, line


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def _open(path: Path) -> tuple[BinaryIO, str]:
    """The file, ready for appending, and the hash of its last line."""
    # Unbuffered: a line is with the kernel when `write` returns, and survives our own death.
    file = path.open("a+b", buffering=0)
    path.chmod(0o600)
    if file.seek(0, os.SEEK_END) == 0:
        return file, FIRST_HASH
    if not _tail(file).endswith(b"\n"):  # the host died in the middle of a line
        file.write(b"\n")
    return file, _tail_hash(path)


def _tail(file: BinaryIO) -> bytes:
    file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE))
    return file.read(LONGEST_LINE)


def _tail_hash(path: Path) -> str:
    """The hash of the last line."""
    with path.open("rb") as file:
        return _hash(_tail(file).rstrip(b"\n").rpartition(b"\n")[2])


def _lines_of(path: Path) -> int:
    """How many lines there are up to the end of this file: its own, and those its anchor tells of."""
    with path.open("rb") as file:
        first = _parsed(file.readline().rstrip(b"\n"))
        own = 1 + sum(1 for _ in file)
    return own + (int(first.get("lines", 0)) if ANCHOR in first else 0)


def _numbered(path: Path) -> Path:
    """The next number, also when older files have been taken away; names sort as they were given."""
    names = [file.name for file in segments(path)[:-1]]
    with path.open("rb") as file:
        names.append(str(_parsed(file.readline().rstrip(b"\n")).get(ANCHOR, "")))
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+){re.escape(path.suffix)}")
    taken = [int(found[1]) for name in names if (found := pattern.fullmatch(name))]
    return path.with_name(f"{path.stem}.{max(taken, default=0) + 1:06d}{path.suffix}")


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
