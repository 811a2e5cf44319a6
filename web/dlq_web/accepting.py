"""The door of the sockets: how many connections one address, and all together, may have.

They are counted from the first packet on. A connection that never shakes hands for TLS costs
memory, too: 0.3 MiB for a minute.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from dlq_web.door.budgets import address_key

MOST_OF_AN_ADDRESS = 200  # connections; behind a proxy all are the proxy's
MOST_CONNECTIONS = 5_000


def _nothing() -> None:
    """Nobody counts it."""


class CountedConnection(socket.socket):
    """A connection that tells its end once."""

    ended: Callable[[], None] = staticmethod(_nothing)

    def close(self) -> None:
        """End it."""
        super().close()
        ended, self.ended = self.ended, _nothing
        ended()


class BoundedListener(socket.socket):
    """A listening socket that closes at once the connections that are too many."""

    def __init__(self, listening: socket.socket) -> None:
        """It takes the place of this one."""
        kind = listening.family, listening.type, listening.proto
        super().__init__(*kind, listening.detach())
        self._of_address: Counter[str] = Counter()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. ConnectionAbortedError: it was one too many."""
        plain, address = super().accept()
        key = address_key(address[0]) if self.family is not socket.AF_UNIX else ""
        alone = self._of_address[key] < MOST_OF_AN_ADDRESS or not key
        if not alone or self._of_address.total() >= MOST_CONNECTIONS:
            plain.close()
            raise ConnectionAbortedError("too many connections")
        kind = plain.family, plain.type, plain.proto
        taken = CountedConnection(*kind, plain.detach())
        self._of_address[key] += 1
        taken.ended = lambda: self._leave(key)
        return taken, address

    def _leave(self, key: str) -> None:
        self._of_address[key] -= 1
        if not self._of_address[key]:
            del self._of_address[key]
