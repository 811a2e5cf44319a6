"""Threads for calls that may hang: as few as do, for threads of Python wait for each other.

One thread takes the errands in order. Another one helps as soon as an errand has waited for a
while, because the one before it hangs or is slow. A helper leaves when nothing waits. All of this
is memory of one agent: a restarted one begins without errands, and orders them anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

PATIENCE_S: Final = 0.02

Work = Callable[[], None]


class ErrandThreads:
    """Runs errands, none of which raises. `submit` and `close` are for the event loop's thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._waiting: deque[tuple[float, Work]] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()  # one for each errand; false: leave
        self._lock = threading.Lock()
        self._at_work = 0
        self._watched = False

    @property
    def count(self) -> int:
        """Threads that are there now."""
        return self._at_work

    def submit(self, work: Work) -> None:
        """Have an errand run, after the earlier ones; returns at once."""
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time(), work))
        self._calls.put(True)
        if not self._at_work:
            self._add()
        if not self._watched:
            self._watched = True
            loop.call_later(PATIENCE_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Add a helper if the oldest errand waits for too long. Again, while any waits."""
        try:
            since_s, _ = self._waiting[0]
        except IndexError:
            self._watched = False
            return
        if loop.time() - since_s >= PATIENCE_S and self._at_work < self._most:
            self._add()
        loop.call_later(PATIENCE_S, self._look, loop)  # a thread that cannot start is tried again

    def close(self) -> None:
        """Drop the errands that wait. Threads that hang are left alone."""
        self._waiting.clear()
        for _ in range(self._at_work):
            self._calls.put(False)

    def _add(self) -> None:
        with self._lock:
            self._at_work += 1
        try:
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError:  # this host has no room for a thread now
            with self._lock:
                self._at_work -= 1

    def _serve(self) -> None:
        while self._calls.get():
            try:
                _, work = self._waiting.popleft()
            except IndexError:  # dropped by `close`
                continue
            work()
            if self._leaves():
                return

    def _leaves(self) -> bool:
        """Whether this thread is one too many."""
        with self._lock:
            if self._waiting or self._at_work == 1:
                return False
            self._at_work -= 1
            return True
