"""A command inside a job in the foreground: our stdin goes in, its output comes out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext

from dlq.v1 import exec_pb2
from dlq_cli.interactive.stdin_reader import StdinReader
from dlq_cli.interactive.terminal import STDIN, StreamPrinter, raw_terminal
from dlq_client.inside.command import CommandInside

Heard = Callable[[bytes], object]


def attended(
    inside: CommandInside, *, stdin: bool, raw: bool, heard: Heard | None = None
) -> exec_pb2.ExecEnded:
    """Print the output of a command until it ends, and return its end. Any end of this function
    kills the command.

    With `stdin` the command gets our stdin. With `raw` our terminal is its terminal, and is as
    before afterwards. `heard` gets the stdout of the command too. Unavailable: the line was cut,
    and the command has been killed.
    """
    try:
        with raw_terminal(inside.resize) if raw else nullcontext():
            if stdin:
                return _fed(inside, raw, heard)
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


def _fed(inside: CommandInside, raw: bool, heard: Heard | None) -> exec_pb2.ExecEnded:
    """The same while a thread brings our stdin to the command."""
    reader = StdinReader(STDIN, take=inside.stdin, at_end=inside.end_stdin)
    reader.start()
    try:
        return _print_all(inside, raw, heard)
    finally:
        inside.kill()  # before the stop: it lets a piece go that waits for the command
        reader.stop()


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
