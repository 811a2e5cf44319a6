"""Two joined lines of the relay, and the bytes between them.

A line ends in one of two ways. With a word of TLS (close_notify), its holder has ended it: the word
is passed on. Without it, the line was lost: the other line is closed without it too, and the holder
comes back another way.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

# One record of TLS. A shorter rest of the buffer could leave bytes in OpenSSL that no select sees.
RECORD_BYTES: Final = 16 * 1024
PIECE_BYTES: Final = 256 * 1024
CALLER, AGENT = 0, 1
SIDES: Final = (CALLER, AGENT)

_scratch = memoryview(bytearray(PIECE_BYTES))


class TicketHolder(NamedTuple):
    """The holder of one ticket: the name in its certificate, and the serial, where one is told."""

    ticket: str
    name: str
    serial: str = ""

    def is_of(self, line: ssl.SSLSocket) -> bool:
        """Whether this line has the right certificate. TLS has checked that it is ours."""
        certificate = line.getpeercert() or {}
        names = [value for kind, value in _names(certificate) if kind == "URI"]
        serial = str(certificate.get("serialNumber", "")).lstrip("0").lower()
        return names == [self.name] and self.serial in ("", serial)


def _names(certificate: object) -> Iterator[tuple[str, str]]:
    assert isinstance(certificate, dict)
    yield from certificate.get("subjectAltName", ())


class SideLost(Exception):
    """A line broke; `side` says which."""

    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.side = side


class JoinedWay:
    """Bytes in one direction. While some wait for the target, the source is not read."""

    def __init__(self, source: ssl.SSLSocket, target: ssl.SSLSocket, side: int) -> None:
        self._source, self._target, self._side = source, target, side
        self._waiting: bytes | memoryview = b""
        self.heard_end = False

    @property
    def is_full(self) -> bool:
        """Whether bytes wait for the target."""
        return bool(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether the source has ended the line, and the target has had everything."""
        return self.heard_end and not self._waiting

    def move(self) -> None:
        """As much as fits now, up to one piece. Raises SideLost."""
        if self._waiting and not self._write(self._waiting):
            return
        self._waiting = b""
        if self.heard_end:
            return
        piece = _scratch[: self._read()]
        if piece and not self._write(piece):
            self._waiting = bytes(piece)

    def _read(self) -> int:
        at = 0
        try:
            while PIECE_BYTES - at >= RECORD_BYTES:
                got = self._source.recv_into(_scratch[at:])
                if not got:
                    self.heard_end = True
                    break
                at += got
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except ssl.SSLZeroReturnError:
            self.heard_end = True
        except OSError:
            raise SideLost(self._side) from None
        return at

    def _write(self, piece: bytes | memoryview) -> bool:
        """Whether all of it went out. Otherwise OpenSSL wants the same bytes again."""
        try:
            self._target.send(piece)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            raise SideLost(1 - self._side) from None
        return True


class JoinedPair:
    """One caller and one agent: first two tickets, then two lines."""

    def __init__(
        self, number: int, expected: tuple[TicketHolder, TicketHolder], until_s: float
    ) -> None:
        self.number, self.expected = number, expected
        self.until_s: float | None = until_s
        """Then it is given up: both must be here, or the master must have given its word."""
        self.lines: dict[int, ssl.SSLSocket] = {}
        self._ways: tuple[JoinedWay, ...] = ()

    @property
    def is_joined(self) -> bool:
        """Whether bytes move."""
        return bool(self._ways)

    def join(self) -> None:
        """Both are here."""
        lines = self.lines
        self._ways = tuple(JoinedWay(lines[side], lines[1 - side], side) for side in SIDES)
        self.until_s = None

    def move(self, side: int, *, readable: bool, writable: bool) -> bool:
        """Whether it goes on, after what this line can do now. Raises SideLost."""
        if readable:
            self._ways[side].move()
        if writable:
            self._ways[1 - side].move()
        return not any(way.is_over for way in self._ways)

    def wants(self, side: int) -> tuple[bool, bool]:
        """Whether this line is to be read, and to be written."""
        own = self._ways[side]
        return not own.is_full and not own.heard_end, self._ways[1 - side].is_full

    def end(self, *, cleanly: bool) -> None:
        """Close both lines; `cleanly`: their holders hear that nobody comes back."""
        for line in self.lines.values():
            close_line(line, cleanly=cleanly)
        self.lines.clear()


def close_line(line: ssl.SSLSocket, *, cleanly: bool) -> None:
    """With the word of TLS, or without it."""
    if cleanly:
        with suppress(OSError, ValueError):
            line.unwrap()
    with suppress(OSError):
        line.close()
