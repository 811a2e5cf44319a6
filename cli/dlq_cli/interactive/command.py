"""A command inside a job in the foreground: our stdin goes in, its output comes out."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress

from dlq.v1 import exec_pb2
from dlq_cli.interactive.terminal import STDIN, STDIN_READER, StreamPrinter, is_over, raw_terminal
from dlq_client.inside.command import CommandInside
from dlq_client.inside.counted import PIECE_BYTES

Heard = Callable[[bytes], object]
_STOPS_S = 0.5  # a reader waits longer only where another program has taken what it was to read


def attended(
    inside: CommandInside, *, stdin: bool, raw: bool, heard: Heard | None = None
) -> exec_pb2.ExecEnded:
    """Stay with a command to its end, and return that. Any end of this kills the command.

    With `raw` our terminal is its terminal, and is as before afterwards. `heard` gets its stdout
    too. Unavailable: the line was
    cut, and the command has been killed.
    """
    try:
        with raw_terminal(inside.resize) if raw else nullcontext():
            if stdin:
                with _Feeding(inside):
                    return _print_all(inside, raw, heard)
            inside.end_stdin()
            return _print_all(inside, raw, heard)
    finally:
        inside.kill()


def captured(inside: CommandInside) -> tuple[exec_pb2.ExecEnded, bytes]:
    """The end of a short command without input, and its stdout."""
    inside.end_stdin()
    said, ended = b"", exec_pb2.ExecEnded()
    try:
        for output in inside.outputs():
            said += output.stdout
            if output.HasField("ended"):
                ended = output.ended
    finally:
        inside.kill()
    return ended, said


class _Feeding:
    """A thread that brings everything from stdin, until stdin ends or the command. It does not read
    on then: the next bytes are for the caller's next program.
    """

    def __init__(self, inside: CommandInside) -> None:
        self._inside = inside
        self._over, self._tell_over = os.pipe()
        self._thread = threading.Thread(target=self._feed, daemon=True, name=STDIN_READER)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._inside.kill()
        os.close(self._tell_over)
        self._thread.join(_STOPS_S)
        if not self._thread.is_alive():
            os.close(self._over)

    def _feed(self) -> None:
        try:
            while data := self._read():
                self._inside.stdin(data)
        except OSError:
            pass  # a stdin that cannot be read has ended
        self._inside.end_stdin()

    def _read(self) -> bytes:
        """The next bytes; empty at the end of stdin, and of the command."""
        while True:
            if is_over(STDIN, self._over):
                return b""
            with suppress(BlockingIOError):  # another reader of a pipe was faster
                return os.read(STDIN, PIECE_BYTES)


def _print_all(inside: CommandInside, raw: bool, heard: Heard | None) -> exec_pb2.ExecEnded:
    out, err = StreamPrinter(sys.stdout.buffer, raw=raw), StreamPrinter(sys.stderr.buffer, raw=raw)
    ended = exec_pb2.ExecEnded()
    for output in inside.outputs():
        match output.WhichOneof("body"):
            case "stdout":
                out.write(output.stdout)
                if heard is not None:
                    heard(output.stdout)
            case "stderr":
                err.write(output.stderr)
            case "ended":
                ended = output.ended
            case _:
                pass
    out.finish()
    err.finish()
    return ended
