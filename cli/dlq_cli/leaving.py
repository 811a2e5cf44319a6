"""The end of a `dlq` process: flush the output, and wait for nothing else.

The interpreter's own end stops daemon threads wherever they are. One of gRPC's may hold the lock of
a stream then, and the end of that stream would wait for this lock for ever.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn, TextIO

from dlq_cli.exit_codes import INTERRUPTED

_FLUSH_FAILED = 120  # the interpreter's own code
_INTERRUPTED_FLUSH_S = 2.0  # the reader of an interrupted command may be gone or slow


def fill_closed_streams() -> None:
    """Open /dev/null for each standard stream that the caller has closed (`dlq status >&-`).

    Otherwise the next file or connection would get its number, and the output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)  # a file of this process has it already
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
        setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115


def leave(code: int) -> NoReturn:
    """End this process with an exit code; 120: the output cannot be written."""
    if code == INTERRUPTED:
        # A thread may hold the lock of stdout.
        flushing = threading.Thread(target=end_of, args=(code,), daemon=True)
        flushing.start()
        flushing.join(_INTERRUPTED_FLUSH_S)
    else:
        code, _ = end_of(code)
    os._exit(code & 0xFF)


def end_of(code: int) -> tuple[int, bool]:
    """Flush as the interpreter does when it ends: the exit code, and whether all was written.

    A stream that the caller had closed is None, and loses nothing.
    """
    flushed = True
    try:
        _flush(sys.stdout)
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        with suppress(OSError, ValueError):  # stderr may be full, too
            print(f"Exception ignored in: {sys.stdout!r}\n{kind}: {error}", file=sys.stderr)
        code, flushed = _FLUSH_FAILED, False
    try:
        _flush(sys.stderr)
    except (OSError, ValueError):
        code, flushed = _FLUSH_FAILED, False
    return code, flushed


def _flush(stream: TextIO | None) -> None:
    if stream is not None:
        stream.flush()
