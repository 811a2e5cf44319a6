"""`dlq notebook`: Jupyter as a job, at a port of this host."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job
from dlq_cli.commands.jobs.submit import SubmitCommand, asked_spec
from dlq_cli.commands.jobs.submitted import send_spec, tell_reasons
from dlq_cli.commands.look.logs import follow_job
from dlq_cli.commands.look.wait import exit_code, wait_for
from dlq_cli.commands.options import detaching, examples
from dlq_cli.interactive.attendance import Attendance
from dlq_cli.interactive.notebook import found_notebook, starting_words
from dlq_cli.interactive.queue import send_interactive
from dlq_cli.interactive.rank_stdin import running_attempt, still_runs
from dlq_cli.interactive.waiting import WaitTeller
from dlq_cli.jobs.cancelled import tell_cancel
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.lists.select import one_job
from dlq_cli.spec.message import to_message
from dlq_client.inside.forward import LOOPBACK, Forward
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest, Unavailable

_TWICE_S = 2.0
_AGAIN_S = 1.0
_LAST_LINES = 10


@click.command(
    cls=SubmitCommand,
    options_metavar="[FLAGS] [-- WORDS]",
    epilog=examples(
        "dlq notebook -G 1 -t 4h",
        "dlq notebook -G 1 --local 8888 -- --notebook-dir=/data",
        "dlq notebook -G 1 --keep",
        "dlq notebook --job 17",
    ),
)
@click.option("--job", "known", metavar="JOB", help="Open the notebook of this job again.")
@click.option("--keep", is_flag=True, help="The job goes on when this command ends.")
@click.option(
    "--local",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="The port of this host.  [default: any that is free]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="While it waits, one JSON object on stderr for news."
)
@click.pass_context
def notebook(
    ctx: click.Context, /, known: str | None, keep: bool, local: int, as_json: bool, **flags: Any
) -> None:
    """Start Jupyter as a job, wait for it, and print an address of this host that opens it.

    `jupyter lab` must be installed in the job's environment or image; words after `--` are for it.
    No port is opened on the node. Without --keep the job belongs to this command: two presses of
    Ctrl-C end it, and so do 30 s without this command ([jobs] attend_silence). It is then never run
    again. With --keep Ctrl-C leaves it alone. --job opens either kind again; one without --keep
    lives as long as one of these commands.
    """
    app: App = ctx.obj
    if known is not None:
        job_id = running_job(app, one_job(Jobs(app.connection()), known))
        keep, message = True, job_pb2.JobSpec()
    else:
        job_id, message = _submitted(ctx, keep, flags)
    left = detaching(app, [job_id]) if keep else _ended_by_ctrl_c(app, job_id)
    kept = keep and known is None  # --job may be a job that lives by its client alone: be one
    with left, _kept(app, job_id, kept):
        if known is None:
            with WaitTeller(app, message, as_json=as_json) as holds:
                wait_for(app, [job_id], running=True, holds=holds)
        _serve(app, job_id, local or _free_port())
    ended = wait_for(app, [job_id])
    if code := exit_code(ended.values()):
        follow_job(app, job_id, lines=_LAST_LINES, holds=HoldTeller(app))
        for job in ended.values():
            tell_cancel(app, job)
        raise exit_codes.Ended(code)


def _submitted(
    ctx: click.Context, keep: bool, flags: dict[str, Any]
) -> tuple[str, job_pb2.JobSpec]:
    """The number of the new job, and its spec."""
    ctx.meta["dlq.command"] = starting_words(ctx.meta["dlq.command"] or ())
    flags["job_name"] = flags["job_name"] or "notebook"
    spec = asked_spec(ctx, (), None, flags)
    message = to_message(spec)
    if message.HasField("array") or message.HasField("elastic"):
        raise InvalidRequest("a notebook is one job of one size")
    message.interactive.attended = not keep
    app: App = ctx.obj
    again = "see `dlq status`, or submit under {} again"
    answer = send_interactive(app, message, partial(send_spec, app, spec, message, again))
    app.say(f"job {answer.job.job_id} is queued")
    tell_reasons(app, answer.job.job_id, answer.reasons)
    return answer.job.job_id, message


def _kept(app: App, job_id: str, keep: bool) -> AbstractContextManager[object]:
    return nullcontext() if keep else Attendance(app.connection(), job_id, lambda _job: None)


@contextmanager
def _ended_by_ctrl_c(app: App, job_id: str) -> Iterator[None]:
    """Two presses within two seconds leave; the job is cancelled at every end."""
    pressed_s = -_TWICE_S

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed_s
        now_s, before_s = app.clock.boottime_s(), pressed_s
        pressed_s = now_s
        if now_s - before_s <= _TWICE_S:
            raise KeyboardInterrupt
        app.say(f"press again within {_TWICE_S:.0f} s to end the notebook and its job")

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    except KeyboardInterrupt:
        app.say(f"job {job_id} is cancelled")
        raise exit_codes.Ended(exit_codes.INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
        Jobs(app.connection()).cancel(job_id)


def _serve(app: App, job_id: str, local: int) -> None:
    """Until the job's end, attempt after attempt. A line that is lost is made again."""
    connection, attempt = app.connection(), 0
    while attempt := running_attempt(connection, job_id, after=attempt):
        while still_runs(Jobs(connection), job_id, attempt):
            try:
                _serve_once(app, job_id, local)
            except Unavailable as error:
                if still_runs(Jobs(connection), job_id, attempt):
                    app.say(f"{error.what}; trying again while job {job_id} runs")
            except IllegalTransition:
                if still_runs(Jobs(connection), job_id, attempt):
                    raise
            threading.Event().wait(_AGAIN_S)


def _serve_once(app: App, job_id: str, local: int) -> None:
    """Until the line is over, which raises."""
    found = found_notebook(app.connection(), job_id)
    line = Forward(app.connection(), job_id, tell=app.say)
    try:
        line.listen(found.port, local)
        line.serve(lambda: click.echo(found.url(local)))
    finally:
        line.close()


def _free_port() -> int:
    """It stays the same when the line is made again."""
    with socket.create_server((LOOPBACK, 0)) as made:
        port: int = made.getsockname()[1]
        return port
