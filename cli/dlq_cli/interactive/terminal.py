"""The user's own terminal: raw while a program elsewhere has it, and restored at every end."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, BinaryIO

from dlq_cli.output.terminal import TerminalFilter
from dlq_common.errors import InvalidRequest

STDIN = 0
STDIN_READER = "stdin"  # the name of threads that read it (stdin_reader.py)
_USUAL = (80, 24)


def needed_size(flag: str) -> tuple[int, int]:
    """Columns and rows. InvalidRequest names the flag: stdin or stdout is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest(f"{flag} needs a terminal, and here is none", hint=f"leave {flag} out")
    return size()


def size() -> tuple[int, int]:
    """The terminal's present columns and rows, whatever COLUMNS and LINES say."""
    try:
        columns, rows = os.get_terminal_size(STDIN)
    except OSError:
        return _USUAL
    return columns or _USUAL[0], rows or _USUAL[1]


@contextmanager
def raw_terminal(resized: Callable[[tuple[int, int]], None]) -> Iterator[None]:
    """Inside, every key is a byte of stdin, also Ctrl-C, and `resized` is called with new sizes."""
    before = termios.tcgetattr(STDIN)

    def restored_end(number: int, _frame: FrameType | None) -> None:
        termios.tcsetattr(STDIN, termios.TCSANOW, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers: dict[signal.Signals, Any] = {signal.SIGWINCH: lambda *_: resized(size())}
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(each) is signal.SIG_DFL:
            handlers[each] = restored_end
    handled = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # typed-ahead input is not thrown away
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
        for each, handler in handled.items():
            signal.signal(each, handler)


def wait_for(file: int, event: int) -> None:
    """Wait until a non-blocking file is ready for poll's event, or has an error."""
    ready = select.poll()
    ready.register(file, event)
    ready.poll()


class StreamPrinter:
    """One stream; a terminal gets text and colours only, unless the command has a terminal."""

    def __init__(self, stream: BinaryIO, *, raw: bool) -> None:
        stream.flush()
        self._stream = stream
        self._filter = TerminalFilter() if stream.isatty() and not raw else None

    def write(self, data: bytes) -> None:
        """Print at once."""
        self._print(self._filter.feed(data) if self._filter else data)

    def finish(self) -> None:
        """Print the rest that the filter has kept."""
        if self._filter:
            self._print(self._filter.finish())

    def _print(self, data: bytes) -> None:
        """Write all bytes; waits for a full pipe, also a non-blocking one (rsync's)."""
        try:
            file = self._stream.fileno()
        except OSError:  # a stream of this program's own
            self._stream.write(data)
            return
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(file, left) :]
            except BlockingIOError:
                wait_for(file, select.POLLOUT)
