"""Two joined lines of the relay, and the bytes between them.

TLS with the relay shows the tickets, and ends. From then on both ends speak TLS with each other,
and nothing here can read it. The end of one line is passed on after its bytes. Only the ends know
whether it had a word of TLS before it, so that nobody comes back.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final, NamedTuple

from dlq_client.inside.relay_line import names_of

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
        serial = str(certificate.get("serialNumber", "")).lstrip("0").lower()
        return names_of(certificate) == [self.name] and self.serial in ("", serial)


class TargetLost(Exception):
    """A line takes no more bytes: nothing of the pair is of use."""


class JoinedWay:
    """Bytes in one direction. While some wait for the target, the source is not read."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source, self._target = source, target
        self._waiting = memoryview(b"")
        self.heard_end = self.is_over = False
        """The source says no more; and the target has had everything."""

    @property
    def is_full(self) -> bool:
        """Whether bytes wait for the target."""
        return bool(self._waiting)

    def move(self) -> None:
        """As much as fits now, up to one piece. Raises TargetLost."""
        if self._waiting:
            self._waiting = self._sent(self._waiting)
        elif not self.heard_end:
            # The piece that all share is of use to others then.
            self._waiting = memoryview(bytes(self._sent(_scratch[: self._read()])))
        if self.heard_end and not self._waiting and not self.is_over:
            self.is_over = True
            with suppress(OSError):
                self._target.shutdown(socket.SHUT_WR)

    def _read(self) -> int:
        try:
            got = self._source.recv_into(_scratch)
        except BlockingIOError:
            return 0
        except OSError:
            got = 0
        self.heard_end = not got
        return got

    def _sent(self, piece: memoryview) -> memoryview:
        """Sends a piece and returns the rest that the kernel did not take."""
        if not piece:
            return piece
        try:
            return piece[self._target.send(piece) :]
        except BlockingIOError:
            return piece
        except OSError:
            raise TargetLost from None


class JoinedPair:
    """One caller and one agent: first two tickets, then two lines."""

    def __init__(
        self, number: int, expected: tuple[TicketHolder, TicketHolder], until_s: float
    ) -> None:
        self.number, self.expected = number, expected
        self.until_s: float | None = until_s
        """Then it is given up: both must be here, or both must have ended."""
        self.lines: dict[int, socket.socket] = {}
        self._ways: tuple[JoinedWay, ...] = ()

    @property
    def is_joined(self) -> bool:
        """Whether bytes move."""
        return bool(self._ways)

    def part(self, side: int) -> bool:
        """Whether both lines have left TLS with us, so that they are joined. Raises OSError where
        this one does not, or has not yet.
        """
        line = self.lines[side]
        assert isinstance(line, ssl.SSLSocket)
        line.unwrap()
        self.lines[side] = socket.socket(fileno=line.detach())
        caller, agent = (self.lines[each] for each in SIDES)
        if isinstance(caller, ssl.SSLSocket) or isinstance(agent, ssl.SSLSocket):
            return False
        self._ways = JoinedWay(caller, agent), JoinedWay(agent, caller)
        self.until_s = None
        return True

    def move(self, side: int, *, readable: bool, writable: bool) -> int:
        """How many of the two lines have ended, after what this one can do now. Raises
        TargetLost.
        """
        if readable:
            self._ways[side].move()
        if writable:
            self._ways[1 - side].move()
        return sum(way.is_over for way in self._ways)

    def wants(self, side: int) -> tuple[bool, bool]:
        """Whether this line is to be read, and to be written."""
        own = self._ways[side]
        return not own.is_full and not own.heard_end, self._ways[1 - side].is_full

    def end(self) -> None:
        """Close both lines."""
        for line in self.lines.values():
            line.close()
        self.lines.clear()
