"""A host before the relay that lies about the bytes: it drops, repeats, swaps, changes and cuts.

It reads nothing of what it passes on, as the relay itself cannot. A relay can do no more than that.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_RESET = struct.pack("ii", 1, 0)


class Cut(Exception):
    """The connection ends here."""


def _changed(piece: bytes) -> bytes:
    return piece[:-1] + bytes([piece[-1] ^ 1])


def _swapped(piece: bytes) -> bytes:
    half = len(piece) // 2
    return piece[half:] + piece[:half]


def _cut(_piece: bytes) -> bytes:
    raise Cut


LIES: dict[str, Callable[[bytes], bytes]] = {
    "changed": _changed,
    "dropped": lambda _: b"",
    "repeated": lambda piece: piece * 2,
    "swapped": _swapped,
    "cut": _cut,
    "reset": _cut,
}


class LyingProxy:
    """Listens on a port of its own. It lies about the bytes of a connection behind `after_bytes`,
    in all as often as `lies_left` says.
    """

    def __init__(
        self, port: int, lie: str, *, upward: bool, after_bytes: int, at_port: int = 0
    ) -> None:
        """`port` of the relay. `upward`: about bytes to the relay, and not about those from it."""
        self._port, self._lie, self._upward = port, lie, upward
        self._after_bytes = after_bytes
        self.lies_left = self.lies = 0
        self._door = socket.create_server(("127.0.0.1", at_port))
        self._ends: list[socket.socket] = []
        self._lying = threading.Lock()

    @property
    def address(self) -> str:
        """HOST:PORT of it."""
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator[LyingProxy]:
        """Serve in threads until the end of the block."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            for each in (self._door, *self._ends):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [near, far]
                for source, target, up in ((near, far, True), (far, near, False)):
                    each = (source, target, up == self._upward)
                    threading.Thread(target=self._pass, args=each, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, lies: bool) -> None:
        passed = 0
        try:
            while piece := source.recv(65_536):
                passed += len(piece)
                if lies and passed > self._after_bytes and self._may_lie():
                    piece = LIES[self._lie](piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except Cut:
            self._cut(source, target)
        except OSError:
            self._cut(source, target)

    def cut_all(self) -> None:
        """Every connection of now ends, as of a host between two networks."""
        self._cut(*self._ends)

    def _may_lie(self) -> bool:
        with self._lying:
            if not self.lies_left:
                return False
            self.lies_left -= 1
            self.lies += 1
            return True

    def _cut(self, *ends: socket.socket) -> None:
        for each in ends:
            with suppress(OSError):
                if self._lie == "reset":
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    each.close()
                else:
                    each.shutdown(socket.SHUT_RDWR)
