"""A command inside a job in the foreground: our stdin goes in, its output comes out."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext

from dlq.v1 import exec_pb2
from dlq_cli.interactive.terminal import STDIN, StreamPrinter, raw_terminal, wait_for
from dlq_client.inside.command import CommandInside
from dlq_client.inside.counted import PIECE_BYTES

Heard = Callable[[bytes], object]


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
                threading.Thread(target=_feed, args=(inside,), daemon=True).start()
            else:
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


def _feed(inside: CommandInside) -> None:
    """Everything from stdin, until it ends or this process does."""
    try:
        while data := _read_stdin():
            inside.stdin(data)
    except OSError:
        pass  # a stdin that cannot be read has ended
    inside.end_stdin()


def _read_stdin() -> bytes:
    while True:
        try:
            return os.read(STDIN, PIECE_BYTES)
        except BlockingIOError:  # a pipe whose reads never wait: its other end may have made it so
            wait_for(STDIN, select.POLLIN)


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
