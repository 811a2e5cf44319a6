"""`dlq run`: queue a job and stay with it, as if it ran here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import FrameType
from typing import Any

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.jobs.submit import SubmitCommand, asked_spec, script_is_stdin
from dlq_cli.commands.jobs.submitted import send_spec, tell_reasons
from dlq_cli.commands.look.logs import follow_job
from dlq_cli.commands.look.wait import exit_code, wait_for
from dlq_cli.commands.options import detaching, examples
from dlq_cli.interactive.attendance import Attendance
from dlq_cli.interactive.job_terminal import JobTerminal
from dlq_cli.interactive.piped import PipedStdin
from dlq_cli.interactive.queue import ask_for_it, send_interactive
from dlq_cli.interactive.rank_stdin import first_piece, piped_stdin
from dlq_cli.interactive.terminal import needed_size
from dlq_cli.interactive.waiting import WaitTeller
from dlq_cli.jobs.cancelled import tell_cancel
from dlq_cli.output import json_errors
from dlq_cli.spec.message import to_message
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError, IllegalTransition, InvalidRequest
from dlq_common.job_fields.reading.words import PIPE, TERMINAL

# Two presses within it mean it; one alone is the job's.
TWICE_S = 2.0


@click.command(
    cls=SubmitCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[FLAGS]",
    epilog=examples(
        "dlq run -G 1 -- nvidia-smi",
        "dlq run -G 8 -t 2h train.sh --lr 0.1 | tee out.txt",
        "dlq run -N 2 --gpus-per-node 8 -- torchrun train.py && echo it went well",
        "tar c data | dlq run -G 1 -- sh -c 'tar x && python3 train.py'",
        "dlq run -G 1 --pty -- bash",
    ),
)
@click.option("--wrap", metavar="LINE", help="Run one line by /bin/sh instead of a script.")
@click.option("--pty", "terminal", is_flag=True, help="Give rank 0 a terminal, at this one.")
@click.option("--interactive", is_flag=True, help="In the queue of interactive jobs, or refused.")
@click.option("--no-stdin", is_flag=True, help="Read nothing: the job's stdin is /dev/null.")
@click.option(
    "--json", "as_json", is_flag=True, callback=json_errors.ask_lines,
    help="Stdout is the job's alone; each line on stderr is a JSON object.",
)  # fmt: skip
@click.argument("source", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT ARGS | SPEC | -- CMD]")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    source: tuple[str, ...],
    wrap: str | None,
    terminal: bool,
    interactive: bool,
    no_stdin: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Queue a job, print the output of its rank 0 as it comes, and exit as the job does.

    The first Ctrl-C goes to the job, as SIGINT to the main process of every rank. A second within
    two seconds cancels the job, and a third leaves. While the job waits only two together do
    anything. A lost line ends nothing: the job goes on, and `dlq attach` joins it again.

    With --json, stderr has objects with one of the keys `message`, `waiting`, `warning` or `error`.
    Stdout has the output of the job and no word of ours, with and without --json.

    While the job waits, its place in line, its start and what would start now are told. Where there
    is a queue for interactive jobs, a job that names none goes there.

    A pipe, or a file, at our stdin is the stdin of rank 0; a terminal is not, unless --pty. A job
    with a terminal, or that has got a byte, is never run again. A preemption, or the loss of its
    node, ends it as failed. It lives while this client does: 30 s of silence ([jobs]
    attend_silence) cancel it. A restart of a daemon, or a line cut for less, loses no byte.
    """
    app: App = ctx.obj
    stdin = _stdin(terminal, no_stdin or script_is_stdin(source, ctx.meta["dlq.command"], wrap))
    spec = asked_spec(ctx, source, wrap, flags)
    message = to_message(spec)
    if message.HasField("array"):
        raise InvalidRequest("dlq run stays with one job; an array is many", hint="dlq submit")
    if stdin.kind == PIPE and message.HasField("elastic"):
        app.say("an elastic job is run again on another size, so its stdin is empty")
        stdin = _Stdin()
    stdin.ask(message)
    if interactive:
        ask_for_it(app, message)
    again = "see `dlq status`, or submit under {} again"
    answer = send_interactive(app, message, partial(send_spec, app, spec, message, again))
    job_id = answer.job.job_id
    app.say(f"job {job_id} is queued")
    tell_reasons(app, job_id, answer.reasons)
    holds = WaitTeller(app, message, as_json=as_json)
    heard = CtrlC(app, job_id).heard()
    with detaching(app, [job_id]), heard, stdin.brought(app, job_id), holds:
        if terminal:
            wait_for(app, [job_id], running=True, holds=holds)
            JobTerminal(app, job_id).stay()
        else:
            follow_job(app, job_id, lines=None, holds=holds)
        ended = wait_for(app, [job_id], holds=holds)
    for job in ended.values():
        tell_cancel(app, job)
    if code := exit_code(ended.values()):
        raise exit_codes.Ended(code)


@dataclass(frozen=True, slots=True)
class _Stdin:
    """The stdin of rank 0."""

    kind: str = ""
    """PIPE, TERMINAL, or empty: /dev/null."""
    descriptor: int = -1
    first: bytes = b""

    def ask(self, message: job_pb2.JobSpec) -> None:
        """Write it into the spec."""
        if not self.kind:
            return
        message.interactive.stdin = self.kind
        if self.kind == TERMINAL:
            message.interactive.attended = True
            if "TERM" in os.environ and "TERM" not in message.environment:
                message.environment["TERM"] = os.environ["TERM"]

    def brought(self, app: App, job_id: str) -> AbstractContextManager[object]:
        """Inside, it goes to the job, or the master hears that our terminal is there."""
        connection = app.connection()
        if self.kind == TERMINAL:
            return Attendance(connection, job_id, lambda _job: None)
        if self.kind == PIPE:
            return PipedStdin(connection, job_id, self.descriptor, app.say, first=self.first)
        return nullcontext()


def _stdin(terminal: bool, closed: bool) -> _Stdin:
    if terminal and closed:
        raise InvalidRequest("--pty needs a stdin of its own", hint="leave --no-stdin out")
    if terminal:
        needed_size("--pty")
        return _Stdin(TERMINAL)
    descriptor = None if closed else piped_stdin()
    first = b"" if descriptor is None else first_piece(descriptor)
    if descriptor is None or first == b"":
        return _Stdin()
    return _Stdin(PIPE, descriptor, first or b"")


class _Cancel(Enum):
    """How far the cancel is that a second press asked for."""

    NOT_ASKED = auto()
    ASKED = auto()
    # The user has read that the master is silent, and may leave by pressing again.
    DOUBTED = auto()
    DONE = auto()


class CtrlC:
    """The meaning of each Ctrl-C while a job runs in the foreground: to the job, to the master, to
    us.
    """

    def __init__(self, app: App, job_id: str) -> None:
        self._app = app
        self._job_id = job_id
        self._pressed_s: float | None = None
        self._cancel = _Cancel.NOT_ASKED
        self._leave: Callable[[int, FrameType | None], Any] = signal.default_int_handler

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, presses are ours. The calls they cause are made by threads: the main one is
        reading.

        A user who leaves after a cancel is told its state; the exit code is 130.
        """
        before = signal.signal(signal.SIGINT, self._handle)
        if callable(before):
            self._leave = before
        try:
            yield
        except KeyboardInterrupt:
            if self._cancel is _Cancel.DONE:
                self._app.say(f"detached; see how it ends: dlq status {self._job_id}")
            else:
                self._app.say(
                    f"detached; whether job {self._job_id} was cancelled is not known: "
                    f"dlq status {self._job_id}"
                )
            raise exit_codes.Ended(exit_codes.INTERRUPTED) from None
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.press():
            self._leave(number, frame)

    def press(self) -> bool:
        """Handle one press. Returns whether it means to leave, as a press after the cancel does."""
        now_s, before_s = self._app.clock.boottime_s(), self._pressed_s
        self._pressed_s = now_s
        if self._cancel in (_Cancel.DOUBTED, _Cancel.DONE):
            return True
        if self._cancel is _Cancel.ASKED:
            # Leaving now would close the line before the master has heard of the cancel.
            self._cancel = _Cancel.DOUBTED
            self._begin(self._say_unanswered)
        elif before_s is not None and now_s - before_s <= TWICE_S:
            self._cancel = _Cancel.ASKED
            self._begin(self._ask_cancel)
        else:
            self._begin(self._forward)
        return False

    @staticmethod
    def _begin(work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _say_unanswered(self) -> None:
        self._app.say("the master has not answered yet; press again to leave without its answer")

    def _forward(self) -> None:
        try:
            Jobs(self._app.connection()).signal_each(self._job_id, "INT", all_ranks=True)
        except IllegalTransition:
            self._app.say(f"job {self._job_id} is not running; Ctrl-C twice within 2 s cancels it")
        except DlqError as error:
            self._app.say(f"SIGINT could not be sent: {error.what}")
        else:
            self._app.say("the job has got SIGINT; press again within 2 s to cancel it")

    def _ask_cancel(self) -> None:
        try:
            Jobs(self._app.connection()).cancel(self._job_id)
        except DlqError as error:
            self._cancel = _Cancel.NOT_ASKED
            self._app.say(f"job {self._job_id} could not be cancelled: {error.what}")
        else:
            self._app.say(f"job {self._job_id} is being cancelled; it may save first")
            self._cancel = _Cancel.DONE
