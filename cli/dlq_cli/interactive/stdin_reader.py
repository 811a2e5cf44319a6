"""A thread that reads stdin until its end, or until it is stopped.

A stopped reader reads nothing more: the next bytes are for the caller's next program.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from dlq_cli.interactive.terminal import STDIN_READER
from dlq_client.inside.counted import PIECE_BYTES

_STOPS_S = 0.5  # longer only where another program has taken the bytes that made the file ready


class StdinReader:
    """Reads a descriptor in pieces of at most PIECE_BYTES."""

    def __init__(
        self,
        descriptor: int,
        take: Callable[[bytes], object],
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        """`take` gets each piece, and is waited for. `at_end` is called once at the end of the
        file, never after a stop. A file that cannot be read has ended.
        """
        self._descriptor, self._take, self._at_end = descriptor, take, at_end
        self._stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._read_all, daemon=True, name=STDIN_READER)

    def start(self) -> None:
        """Begin to read. Does nothing if it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Read no more. Call it once, when `take` waits for nothing; it may never have begun."""
        os.close(self._stop)
        if self._thread.ident is not None:
            self._thread.join(_STOPS_S)
        if not self._thread.is_alive():
            os.close(self._stopped)

    def _read_all(self) -> None:
        while self._wait():
            try:
                data = os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:  # another reader of a pipe was faster
                continue
            except OSError:
                data = b""
            if not data:
                self._at_end()
                return
            self._take(data)

    def _wait(self) -> bool:
        """Wait until the file can be read; False: until the stop."""
        ready = select.poll()
        for each in (self._descriptor, self._stopped):
            ready.register(each, select.POLLIN)
        return all(found != self._stopped for found, _ in ready.poll())
