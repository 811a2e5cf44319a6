"""Finds lines of the audit, the newest first, while the writer goes on.

A search reads a bounded number of bytes, and says where the next one continues. It looks for the
words in whole pieces of a file, and parses only lines that may match. The loop may run between two
pieces. Nothing is stored: a place is the number of a file and a byte in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_master.rpc.audit.chain import ANCHOR, parsed, segments

PIECE_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 32 * 1024 * 1024  # of one search: some 100,000 lines
LINE_PRICE: Final = 4 * 1024  # parsing a line costs as much as searching this many bytes
LONGEST_LINE: Final = 16 * 1024
_NEWEST = 10**9
_NUMBER = re.compile(r"\.(\d{1,8})$")
_PLACE = re.compile(r"(\d{1,8})-(\d{1,12})", re.ASCII)
_PLAIN = re.compile(r"[ -!#-\[\]-~]+")  # JSON writes such a text as it is
_TIME = b'"time":"'


class AuditWanted(NamedTuple):
    """The lines to find; letters match in either case. An empty text matches any line."""

    from_time: str = ""  # as lines tell it
    until_time: str = ""
    user: str = ""  # the caller, or the service that called for them
    method: str = ""  # a part of its path
    about: str = ""  # one of the things that the call was about
    decision: str = ""
    words: tuple[str, ...] = ()  # each anywhere in the line

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Texts that each matching line contains, in small letters."""
        parts = (self.user, self.method, self.about, self.decision, *self.words)
        return tuple(one.lower().encode() for one in parts if _PLAIN.fullmatch(one))

    def has(self, line: Mapping[str, Any]) -> bool:
        """Whether a line matches, apart from its time."""
        told = {key: str(value).lower() for key, value in line.items()}
        return (
            self.user.lower() in ("", told.get("who"), told.get("by"))
            and self.method.lower() in told.get("method", "")
            and (not self.about or self.about.lower() in told.get("object", "").split(","))
            and self.decision.lower() in ("", told.get("decision"))
            and all(any(word.lower() in value for value in told.values()) for word in self.words)
        )


class AuditFound(NamedTuple):
    """The lines found, the newest first, and the place of the next search; "": all has been
    searched.
    """

    lines: list[dict[str, Any]]
    following: str
    back_to: str  # the time of the oldest line that was looked at


class AuditSearch:
    """Searches the files of one chain in a thread, one search at a time."""

    def __init__(self, path: Path) -> None:
        """`path`: the newest file."""
        self._path = path
        self._one = asyncio.Lock()

    async def find(self, wanted: AuditWanted, place: str, most: int) -> AuditFound:
        """At most `most` lines behind `place`; "": from the newest on."""
        async with self._one:
            looking = looked(self._path, wanted, place, most)
            while (found := await asyncio.to_thread(next, looking)) is None:
                pass  # and the loop has had its turn
            return found


def looked(path: Path, wanted: AuditWanted, place: str, most: int) -> Iterator[AuditFound | None]:
    """The same, piece by piece: the first answer that is not None. InvalidRequest: no
    such place.
    """
    lines: list[dict[str, Any]] = []
    price, back_to = 0, ""
    for step in _steps(path, wanted, *_place_of(place)):
        back_to = step.time or back_to
        if back_to < wanted.from_time and back_to:
            yield AuditFound(lines, "", wanted.from_time)
        if step.line is not None and wanted.has(step.line):
            lines.append(step.line)
        price += step.price
        if len(lines) == most or price > MOST_BYTES:
            yield AuditFound(lines, step.place, back_to)
        if step.line is None:
            yield None
    yield AuditFound(lines, "", back_to)


# --- helpers, in order of use ---------------------------------------------------------------------


def _place_of(place: str) -> tuple[int, int]:
    """The number of a file, and a byte in it."""
    if not place:
        return _NEWEST, 0
    known = _PLACE.fullmatch(place)
    if known is None:
        raise InvalidRequest(f"{shown(place)} is not a page token", field="page_token")
    return int(known[1]), int(known[2])


class _Step(NamedTuple):
    """A line that may match, or a piece of a file without one."""

    place: str  # all behind it has been looked at
    time: str  # of the oldest line so far
    price: int
    line: dict[str, Any] | None = None


def _steps(path: Path, wanted: AuditWanted, number: int, end: int) -> Iterator[_Step]:
    """The steps from this place to the oldest line on this disk."""
    needles = wanted.needles
    for here, file in _files(path, number):
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            until = min(end, size) if here == number else size
            if wanted.until_time:
                until = _first_from(opened, wanted.until_time, until)
            for start, piece in _pieces_back(opened, until):
                for offset, line in _lines_back(piece, needles):
                    yield _Step(f"{here}-{start + offset}", _time_of(line), LINE_PRICE, line)
                first = parsed(piece[: piece.find(b"\n")])
                yield _Step(f"{here}-{start}", _time_of(first), len(piece))


def _files(path: Path, most: int) -> Iterator[tuple[int, Path]]:
    """The files with numbers up to `most`, the newest first. The newest has the number that it
    will get.
    """
    named = [(_number_of(file.name), file) for file in segments(path)[:-1]]
    newest = max((number for number, _ in named), default=_before(path)) + 1
    for number, file in [(newest, path), *reversed(named)]:
        if number <= most and file.exists():
            yield number, file


def _before(path: Path) -> int:
    """The number of the file before the newest, which may be archived."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        first = parsed(file.readline(LONGEST_LINE).rstrip(b"\n"))
    return _number_of(str(first.get(ANCHOR, "")))


def _number_of(name: str) -> int:
    told = _NUMBER.search(Path(name).stem)
    return int(told[1]) if told else 0


def _pieces_back(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines before this byte, and their begins, from the end to the beginning."""
    while end > 0:
        start = max(0, end - PIECE_BYTES)
        file.seek(start)
        piece = file.read(end - start)
        first = piece.find(b"\n") + 1 if start else 0  # the first line began before the piece
        if first < len(piece):
            start, piece = start + first, piece[first:]
        yield start, piece
        end = start


def _lines_back(piece: bytes, needles: tuple[bytes, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Lines that may contain all of these texts, the last first, and their begins."""
    small = piece.lower() if needles else b""
    if not all(needle in small for needle in needles):
        return
    end = len(piece)
    while end > 0:
        start = piece.rfind(b"\n", 0, end - 1) + 1
        if all(small.find(needle, start, end) >= 0 for needle in needles):
            line = parsed(piece[start:end].rstrip(b"\n"))
            if line and ANCHOR not in line:
                yield start, line
        end = start


def _time_of(line: Mapping[str, Any]) -> str:
    return str(line.get("time", ""))


def _first_from(file: BinaryIO, instant: str, end: int) -> int:
    """The begin of the lines from this time on, before this byte. Times rise, so it is found by
    bisection.
    """
    low, high = 0, end
    while high - low > LONGEST_LINE:
        middle = (low + high) // 2
        file.seek(middle)
        some = file.read(2 * LONGEST_LINE)
        first = some.find(b"\n") + 1
        told = some.find(_TIME, first) + len(_TIME)
        if first and told > first and some[told : told + len(instant)] < instant.encode():
            low = middle + first
        else:
            high = middle
    file.seek(low)
    for raw in file:
        line_time = _time_of(parsed(raw.rstrip(b"\n")))
        if low >= end or line_time >= instant:
            break
        low += len(raw)
    return min(low, end)
