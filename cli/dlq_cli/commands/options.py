"""Options that several commands share, and leaving a live view without ending the job."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.output import json_errors
from dlq_cli.output.zone import show_utc

_ASK_AGAIN_S = 0.3
# An interrupt may leave a lock of the RPC library held. Tidying up would then wait for it for ever.
_LEAVE_ANYWAY_S = 5.0

F = TypeVar("F", bound=Callable[..., Any])

pass_app = click.pass_obj


def json_option(command: F) -> F:
    """`--json`: one stable object; and `--utc`, which commands that show anything take behind their
    name too.
    """
    words = "One JSON object on stdout."
    told = click.option("--json", "as_json", is_flag=True, callback=json_errors.ask, help=words)
    return _utc_option(told(command))


def _utc_option(command: F) -> F:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            show_utc(yes=True)

    option = click.option("--utc", is_flag=True, expose_value=False, callback=show, hidden=True)
    return option(command)


def yes_option(command: F) -> F:
    """`-y`: do not ask."""
    return click.option("-y", "--yes", is_flag=True, help="Do it without asking.")(command)


def never_asks_option(command: F) -> F:
    """`-y` of a command that reverses a command with `-y`: there is nothing to ask."""
    return click.option(
        "-y", "--yes", is_flag=True, expose_value=False, help="Accepted; the command asks nothing."
    )(command)


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@contextmanager
def _ctrl_c_until_heard() -> Iterator[None]:
    """Python drops a Ctrl-C that comes while an object is finalised, as streams often are: ask
    again.

    The process ends some seconds after the first Ctrl-C in any case.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    leaving: SimpleQueue[None] = SimpleQueue()  # its put may be interrupted by itself
    # Started here: a handler that starts a thread may wait for the thread that it interrupted.
    threading.Thread(target=_leave_anyway, args=(leaving,), daemon=True).start()

    def interrupt(_number: int, _frame: object) -> None:
        leaving.put(None)
        signal.setitimer(signal.ITIMER_REAL, _ASK_AGAIN_S)
        raise KeyboardInterrupt

    alarm = signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGALRM, alarm)


def _leave_anyway(leaving: SimpleQueue[None]) -> None:
    leaving.get()
    time.sleep(_LEAVE_ANYWAY_S)
    os._exit(exit_codes.INTERRUPTED)


@contextmanager
def detaching(app: App, job_ids: Sequence[str]) -> Iterator[None]:
    """Ctrl-C inside leaves the jobs alone and says how to end them; exit code 130."""
    try:
        with _ctrl_c_until_heard():
            yield
    except KeyboardInterrupt:
        if job_ids:
            names = [app.named(job_id) for job_id in job_ids]
            many = f"jobs {', '.join(names)} go" if len(names) > 1 else f"job {names[0]} goes"
            app.say(f"detached; {many} on. To end: dlq cancel {' '.join(names)}")
        else:
            app.say("detached; nothing was changed")
        raise exit_codes.Ended(exit_codes.INTERRUPTED) from None
