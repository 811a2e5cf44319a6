"""For how long the sockets were read while a batch was on its way to the disk.

A slow disk makes no node look silent, since its messages are read meanwhile. A master that was
stopped reads nothing. A timer tells the two apart: while it comes in time, the sockets are read.
Time between two of its calls counts up to LISTEN_S, however long it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LISTEN_S: Final = 0.25


class Listening:
    """Counts from its making on, in a running event loop, until `end`."""

    __slots__ = ("_every_s", "_heard_s", "_now_s", "_since_s", "_timer")

    def __init__(self, now_s: Callable[[], float], every_s: float = LISTEN_S) -> None:
        """`every_s`: the seconds of the event loop between two calls of the timer."""
        self._now_s, self._every_s = now_s, every_s
        self._heard_s = 0.0
        self._since_s = now_s()
        self._timer = asyncio.get_running_loop().call_later(every_s, self._again)

    def end(self) -> float:
        """The seconds for which the sockets were read."""
        self._timer.cancel()
        self._note()
        return self._heard_s

    def _again(self) -> None:
        self._note()
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._again)

    def _note(self) -> None:
        now_s = self._now_s()
        self._heard_s += min(LISTEN_S, max(0.0, now_s - self._since_s))
        self._since_s = now_s
