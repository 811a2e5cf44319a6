"""`dlq exec`: a command inside a job that runs, at a terminal or in a pipe."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

import click

from dlq.v1 import exec_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.lists.select import Named, one_job
from dlq_cli.output.terminal import TerminalFilter
from dlq_client.inside import PIECE_BYTES, CommandInside
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest

STDIN = 0


@click.command(
    "exec",
    epilog=examples(
        "dlq exec 17 -- nvidia-smi",
        "dlq exec -t 17 -- bash",
        "dlq exec --rank 3 17 -- py-spy dump --pid 1",
        "dlq exec 17 -- tar cf - results | tar xf -",
    ),
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give it a terminal, for a shell.")
@click.option("-n", "--no-stdin", is_flag=True, help="Nothing is read from stdin.")
@click.argument("job")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@pass_app
def exec_(
    app: App, job: str, command: tuple[str, ...], rank: int, terminal: bool, no_stdin: bool
) -> None:
    """Run CMD inside JOB, beside its own processes: its user, limits, directory, environment, GPUs.

    It counts against the job's limits, and ends with the job. When this command ends for any reason
    (Ctrl-C, a lost line), CMD and its children are killed; the job goes on.

    Exits as CMD does, with 128+n for signal n, 127 when it is not found, 126 when it cannot be run.
    """
    size = _terminal_size(no_stdin=no_stdin) if terminal else None
    job_id = _running_job(app, one_job(Jobs(app.connection()), job))
    inside = CommandInside(
        app.connection(),
        job_id,
        command,
        node_rank=rank,
        terminal=size,
        terminal_type=os.environ.get("TERM", "") if terminal else "",
    )
    try:
        with _raw_terminal(inside) if terminal else nullcontext():
            if no_stdin:
                inside.end_stdin()
            else:
                threading.Thread(target=_feed, args=(inside,), daemon=True).start()
            ended = _print_all(inside, raw=terminal)
    finally:
        inside.kill()
    if code := _exit_code(app, ended):
        raise exit_codes.Ended(code)


def _running_job(app: App, named: Named) -> str:
    """The job's id; an attempt that was named must be the one that runs."""
    if named.attempt:
        present = Jobs(app.connection()).get(named.job_id).job.attempt_count
        if named.attempt != present:
            raise IllegalTransition(
                f"attempt {named.job_id}.{named.attempt} is over; the last one is {present}"
            )
    return named.job_id


def _terminal_size(*, no_stdin: bool) -> tuple[int, int]:
    if no_stdin or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest("-t needs a terminal, and here is none", hint="leave -t out")
    return _size()


def _size() -> tuple[int, int]:
    columns, rows = shutil.get_terminal_size()
    return columns, rows


def _feed(inside: CommandInside) -> None:
    """Everything from stdin, until it ends or this process does."""
    try:
        while data := os.read(STDIN, PIECE_BYTES):
            inside.stdin(data)
    except OSError:
        pass  # a stdin that cannot be read has ended
    inside.end_stdin()


@contextmanager
def _raw_terminal(inside: CommandInside) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too; a new size of the window is passed on."""
    before = termios.tcgetattr(STDIN)
    before_resize = signal.signal(signal.SIGWINCH, lambda *_: inside.resize(_size()))
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # typed-ahead input is not thrown away
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, before_resize)


def _print_all(inside: CommandInside, *, raw: bool) -> exec_pb2.ExecEnded:
    out, err = _Printer(sys.stdout.buffer, raw=raw), _Printer(sys.stderr.buffer, raw=raw)
    ended = exec_pb2.ExecEnded()
    for output in inside.outputs():
        match output.WhichOneof("body"):
            case "stdout":
                out.write(output.stdout)
            case "stderr":
                err.write(output.stderr)
            case "ended":
                ended = output.ended
            case _:
                pass
    out.finish()
    err.finish()
    return ended


class _Printer:
    """One stream; a terminal gets text and colours only, unless the command has a terminal."""

    def __init__(self, stream: BinaryIO, *, raw: bool) -> None:
        self._stream = stream
        self._filter = TerminalFilter() if stream.isatty() and not raw else None

    def write(self, data: bytes) -> None:
        """Print at once."""
        self._stream.write(self._filter.feed(data) if self._filter else data)
        self._stream.flush()

    def finish(self) -> None:
        """Print the rest that the filter has kept."""
        if self._filter:
            self._stream.write(self._filter.finish())
            self._stream.flush()


def _exit_code(app: App, ended: exec_pb2.ExecEnded) -> int:
    if ended.error:
        app.say(f"the command could not be run: {ended.error}")
        return ended.exit_code if ended.HasField("exit_code") else exit_codes.FAILURE
    if ended.rank_ended:
        app.say("the job's rank has ended, and the command with it")
    return exit_codes.SIGNALLED + ended.signal if ended.signal else ended.exit_code
