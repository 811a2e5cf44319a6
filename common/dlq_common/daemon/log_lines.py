"""Writes finished lines of the log to its stream: at once, or behind the caller, many at a time.

A reader that stalls must not hold a daemon's loop, and one write for each line costs more than the
line. So a line that is told to wait for nobody is left here, and a thread writes it a moment later.
A warning or an error is written before its caller goes on, with all lines before it.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TextIO

# Lines beyond so many are counted instead of kept: their reader has stalled.
MOST_BEHIND: Final = 20_000
# Lines that come within so long share one write.
TOGETHER_S: Final = 0.05
LOST: Final = '{{"event":"log_lines_lost","level":"warning","lines":{}}}'


class LogLines:
    """The lines of one stream, in the order in which they came. Any thread may put lines in."""

    def __init__(self, stream: TextIO, *, behind: bool) -> None:
        """`behind`: lines below a warning are written by a thread of its own."""
        self.stream = stream
        self._behind = behind
        self._lines: deque[str] = deque()
        self._lost = 0
        self._came = threading.Event()
        self._writing = threading.RLock()
        if behind:
            threading.Thread(target=self._run, name="log", daemon=True).start()
            atexit.register(self.flush)

    def put(self, lines: Sequence[str], level: int) -> None:
        """Write the lines, or leave them for the thread. A stream that takes nothing raises
        nothing: a daemon lives on without its log.
        """
        if len(self._lines) >= MOST_BEHIND:
            self._lost += len(lines)
            return
        self._lines.extend(lines)
        if not self._behind or level >= logging.WARNING:
            self.flush()
        elif not self._came.is_set():
            self._came.set()

    def flush(self) -> None:
        """Write everything that has been put in."""
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if self._lost:
                lines.append(LOST.format(self._lost))
                self._lost = 0
            if lines:
                with suppress(OSError, ValueError):  # it is full, or closed
                    self.stream.write("\n".join(lines) + "\n")
                    self.stream.flush()

    def _run(self) -> None:
        pause = threading.Event()  # that nobody sets
        while self._came.wait():
            self._came.clear()
            self.flush()
            pause.wait(TOGETHER_S)
