"""Verifies the audit: every line follows from the one before it, and none is missing at the end.

The files themselves cannot show that their last lines were cut off. The database can: it stores the
number and the hash of the last line on disk at its last write (`Head`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from dlq_master.rpc.audit.chain import ANCHOR, FIRST_HASH, Head, hash_of, parsed, segments

UNKNOWN_LINE: Final = "is not the line that the database knows"
MISSING: Final = "expected_lines"  # key of a line that says: a start found fewer lines than this


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is not as it should be; line 0: the whole file."""

    file: str
    line: int  # from 1
    what: str


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """The findings about the whole chain."""

    lines: int
    missing: int  # lines before the first file that is here, by its anchor
    broken: tuple[Broken, ...]
    torn: bool = False  # the last line is not finished: it is being written, or a crash ended it


def verify_all(path: Path, known: Head | None = None) -> AuditVerdict:
    """Verify the chain with the newest file `path`. `known`: its end by the database."""
    found = [file for file in segments(path) if file.exists()]
    known = known or Head()
    if not found and not known.lines:
        path.stat()  # there has never been one: say so
    walk = _Walk(known)
    for file in found:
        walk.through(file)
    if not walk.met:
        walk.broken.append(_ended_early(path, walk.missing + walk.lines, known))
    return AuditVerdict(walk.lines, walk.missing, tuple(walk.broken), walk.torn)


class _Walk:
    """The state of a verification, from the first file to the last."""

    def __init__(self, known: Head) -> None:
        self._known = known
        self._before: str | None = None
        self.met = known.lines == 0  # the line that the database knows, or it is elsewhere
        self.lines, self.missing, self.torn = 0, 0, False
        self.broken: list[Broken] = []

    def through(self, file: Path) -> None:
        """Verify all lines of one file."""
        self.torn = False
        for number, follows, text_hash, line in _read(file, self._before):
            if number == 1 and self._before is None and ANCHOR in line:
                self._begin(file, line)
            if follows is None:
                self.torn = True
                return
            self.lines += 1
            self.broken += _faults(file, number, follows, line)
            self._meet(file, number, self.missing + self.lines, text_hash)
            self._before = text_hash

    def _begin(self, file: Path, anchor: dict[str, Any]) -> None:
        """Begin at an anchor whose earlier lines are not here."""
        self.missing = int(anchor.get("lines", 0))
        self.met = self.met or self._known.lines < self.missing
        self._meet(file, 1, self.missing, str(anchor.get("before", "")))

    def _meet(self, file: Path, number: int, place: int, text_hash: str) -> None:
        if place == self._known.lines and not self.met:
            self.met = True
            if text_hash != self._known.last_hash:
                self.broken.append(Broken(file.name, number, UNKNOWN_LINE))


def check_end(path: Path, known: Head) -> str:
    """Whether the files have the line that the database knows as the last; "" or what is wrong.

    Quicker than `verify_all`: it hashes that line only.
    """
    if known.lines == 0:
        return ""
    last = 0
    for file in (file for file in segments(path) if file.exists()):
        with file.open("rb") as opened:
            for number, raw in _numbered_lines(opened):
                if number == known.lines and hash_of(raw.rstrip(b"\n")) != known.last_hash:
                    return f"line {number} of the audit {UNKNOWN_LINE}"
                last = number
    return "" if last >= known.lines else _ended_early(path, last, known).what


def lines_after(path: Path, number: int) -> Iterator[dict[str, Any]]:
    """The lines with larger numbers than this, as far as they are on this disk."""
    for file in (file for file in segments(path) if file.exists()):
        with file.open("rb") as opened:
            for place, raw in _numbered_lines(opened):
                if place > number:
                    yield parsed(raw.rstrip(b"\n"))


# --- helpers, in order of use ---------------------------------------------------------------------


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The finished lines of a file, numbered from the first line ever."""
    place: int | None = None
    for raw in file:
        if place is None:
            line = parsed(raw.rstrip(b"\n"))
            place = int(line.get("lines", 0)) if ANCHOR in line else 0
        if raw.endswith(b"\n"):
            place += 1
            yield place, raw


def _faults(file: Path, number: int, follows: bool, line: dict[str, Any]) -> Iterator[Broken]:
    if not follows:
        what = "the line before it" if number > 1 else "the last line of the file before it"
        yield Broken(file.name, number, f"does not follow from {what}")
    if MISSING in line:
        found, expected = line.get("found_lines"), line[MISSING]
        yield Broken(
            file.name, number, f"a start found {found} lines where the database knew {expected}"
        )


def _ended_early(path: Path, lines: int, known: Head) -> Broken:
    return Broken(
        path.name,
        0,
        f"the audit ends after line {lines}, and the database knows {known.lines}: "
        f"{known.lines - lines} lines are lost",
    )


def _read(path: Path, before: str | None) -> Iterator[tuple[int, bool | None, str, dict[str, Any]]]:
    """Each line's number, whether it follows, its hash, and its content. `before` None: trust an
    anchor.

    Whether it follows is None for an unfinished last line.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            text = raw.rstrip(b"\n")
            line = parsed(text)
            if not raw.endswith(b"\n"):
                yield number, None, "", line
                return
            if before is None:
                before = line.get("before", "") if ANCHOR in line else FIRST_HASH
            follows = line.get("before") == before
            before = hash_of(text)
            yield number, follows, before, line
