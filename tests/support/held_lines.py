"""The line of one agent to the master, which a test may hold in either direction, or break.

A held direction loses nothing: its bytes wait, as they do while a network is partitioned and TCP
sends them again. The other direction goes on. A broken line ends every connection and takes none.
"""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

TO_MASTER: Final = "to the master"
TO_AGENT: Final = "to the agent"
BOTH: Final = frozenset({TO_MASTER, TO_AGENT})


class HeldLine:
    """Passes bytes between an agent and the master, in the directions that are not held."""

    def __init__(self, target: str) -> None:
        """`target`: HOST:PORT of the master."""
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._others: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._door = socket.create_server(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._orders: list[tuple[frozenset[str], bool]] = []
        self._held: frozenset[str] = frozenset()
        self._broken = False
        self._ending = False

    @property
    def address(self) -> str:
        """HOST:PORT to dial instead of the master."""
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    def hold(self, directions: frozenset[str]) -> None:
        """Let nothing through in these directions, and everything in the others."""
        self._order(directions, broken=False)

    def sever(self) -> None:
        """End every connection; a new one is refused until `heal`."""
        self._order(frozenset(), broken=True)

    def heal(self) -> None:
        """Let everything through."""
        self._order(frozenset(), broken=False)

    @contextmanager
    def running(self) -> Iterator["HeldLine"]:
        """Serve in a thread until the end of the block."""
        thread = threading.Thread(target=self._serve, name="held-line")
        thread.start()
        try:
            yield self
        finally:
            self._ending = True
            self._wake.send(b"x")
            thread.join()

    def _order(self, held: frozenset[str], *, broken: bool) -> None:
        self._orders.append((held, broken))
        self._wake.send(b"x")

    def _serve(self) -> None:
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while not self._ending:
            for key, _ in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    self._obey()
                elif end is self._door:
                    self._accept()
                elif end in self._others:
                    self._pass(end)
        for end in list(self._others):
            self._drop(end)
        for end in (self._door, self._wake, self._woken):
            end.close()
        self._selector.close()

    def _obey(self) -> None:
        self._woken.recv(1)
        while self._orders:
            self._held, self._broken = self._orders.pop(0)
        for end, (_, direction) in list(self._others.items()):
            if self._broken:
                self._drop(end)
            else:
                self._listen(end, direction)

    def _listen(self, end: socket.socket, direction: str) -> None:
        """Read from this end unless its direction is held."""
        with suppress(KeyError):
            self._selector.unregister(end)
        if direction not in self._held:
            self._selector.register(end, selectors.EVENT_READ)

    def _accept(self) -> None:
        agent, _ = self._door.accept()
        try:
            if self._broken:
                raise ConnectionRefusedError
            master = socket.create_connection(self._target, timeout=2.0)
        except OSError:
            agent.close()
            return
        for end, other, direction in ((agent, master, TO_MASTER), (master, agent, TO_AGENT)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(5.0)
            self._others[end] = (other, direction)
            self._listen(end, direction)

    def _pass(self, end: socket.socket) -> None:
        other, _ = self._others[end]
        data = b""
        with suppress(OSError):
            data = end.recv(65_536)
            if data:
                other.sendall(data)
                return
        self._drop(end)
        self._drop(other)

    def _drop(self, end: socket.socket) -> None:
        if self._others.pop(end, None) is not None:
            with suppress(KeyError):
                self._selector.unregister(end)
            end.close()
