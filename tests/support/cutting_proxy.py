"""A line that loses replies: TCP to the master, cut at random just after a request has gone
through.

The master has done what it was asked; the client cannot know. Seeded, but what the seed meets
depends on timing; the number of cuts is counted, not predicted.
"""

import random
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CuttingProxy:
    """Listens on a port of its own; cuts a connection instead of passing every `share`-th reply."""

    def __init__(self, target: str, *, share: float, seed: int) -> None:
        """`target` HOST:PORT; `share` of the master's replies are lost with their connection."""
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._share = share
        self._chance = random.Random(seed)
        self._ends: dict[socket.socket, tuple[socket.socket, bool]] = {}
        self._selector = selectors.DefaultSelector()
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self.cuts = 0
        self.replies = 0

    @property
    def address(self) -> str:
        """HOST:PORT to dial instead of the master."""
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator["CuttingProxy"]:
        """Serve in a thread until the end of the block."""
        thread = threading.Thread(target=self._serve, name="cutting-proxy")
        thread.start()
        try:
            yield self
        finally:
            self._wake.send(b"x")
            thread.join()

    def _serve(self) -> None:
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    self._close_all()
                    return
                if end is self._door:
                    self._accept()
                elif end in self._ends:
                    self._pass(end)

    def _accept(self) -> None:
        client, _ = self._door.accept()
        try:
            server = socket.create_connection(self._target, timeout=2.0)
        except OSError:
            client.close()
            return
        for end, other, is_server in ((client, server, False), (server, client, True)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends[end] = (other, is_server)
            self._selector.register(end, selectors.EVENT_READ)

    def _pass(self, end: socket.socket) -> None:
        other, from_server = self._ends[end]
        try:
            data = end.recv(65_536)
            if data and from_server:
                self.replies += 1
                if self._chance.random() < self._share:
                    self.cuts += 1
                    data = b""
            if data:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(end)
            self._drop(other)

    def _drop(self, end: socket.socket) -> None:
        if self._ends.pop(end, None) is not None:
            self._selector.unregister(end)
            end.close()

    def _close_all(self) -> None:
        for end in list(self._ends):
            self._drop(end)
        self._selector.close()
        for end in (self._door, self._wake, self._woken):
            end.close()
