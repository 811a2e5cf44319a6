"""`srun` outside a job: an allocation with one step, whose end is its own; or a step of a job that
runs.

The step ends with this program. It outlives the master, and the line of its node, for a while. The
allocation ends after a silence of [jobs] attend_silence.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePosixPath
from types import FrameType

import click

from dlq.v1 import exec_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.interactive.command import attended
from dlq_cli.interactive.terminal import size
from dlq_cli.lists.select import one_job
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.allocate.allocation import Handler, KeptAllocation, handling
from dlq_cli.slurm.allocate.words import SplitWords, split
from dlq_cli.slurm.words import own_word
from dlq_cli.spec.caller import own_limits, own_umask
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound, Unavailable

_TWICE_S = 1.0
_NO_TERMINAL = (80, 24)
_PASSED = (signal.SIGUSR1, signal.SIGUSR2)
_FORCING = (signal.SIGTERM, signal.SIGHUP)
_ABORTED = "Job step aborted: Waiting up to 32 seconds for job step to finish."


def main(app: App, words: Sequence[str]) -> None:
    """Run a command on nodes of its own, or with --jobid in those of a job."""
    given = split(words, "srun")
    if given.given.get("--mpi") == "list":
        click.echo("MPI plugin types are...\n\tnone")
        return
    if not given.command:
        click.echo("srun: fatal: No command given to execute.", err=True)
        raise exit_codes.Ended(exit_codes.FAILURE)
    job_id = given.own.get("--jobid") or os.environ.get("SLURM_JOB_ID", "")
    code = _beside(app, job_id, given) if job_id else _alone(app, given)
    if code:
        raise exit_codes.Ended(code)


def immediate_s(given: SplitWords) -> float | None:
    """The patience that --immediate names; None: any."""
    if "--immediate" not in given.own:
        return None
    text = given.own["--immediate"]
    if text and not text.isdecimal():
        raise InvalidRequest(f"invalid --immediate specification: {text[:40]!r}")
    return float(text or 0)


def _alone(app: App, given: SplitWords) -> int:
    allocation = KeptAllocation(app, "srun", quiet="--quiet" in given.own)
    patience_s = immediate_s(given)
    name = PurePosixPath(given.command[0]).name or "srun"
    allocation.submit(given.allocation, name, limits=given.given.get("--propagate"))
    with allocation.kept(watched=False):  # the command's own stream tells of the job's end
        allocation.wait(patience_s)
        with _terminal(given) as terminal:
            alone = _is_one_task(given)
            words = given.command if alone else _step_words(given)
            spec = allocation.spec
            told = not alone and "--chdir" in given.given  # the `srun` inside tells of it
            step = holder.own_step(words, spec.environment, "" if told else spec.working_directory)
            inside = allocation.inside(step, terminal=terminal)
            raw = terminal is not None
            forced = threading.Event()
            ours = _signals(allocation, inside, forced, raw=raw)
            with ours if alone else _passing(inside, raw=raw):
                try:
                    ended = attended(inside, stdin=_reads(given), raw=_is_raw(terminal))
                except Unavailable:
                    allocation.cancel()  # where that is not heard, the silence ends it
                    raise
        return _end_of(allocation, ended, alone=alone, forced=forced.is_set())


def _is_one_task(given: SplitWords) -> bool:
    """Whether the command is run itself, without the `srun` of the job between."""
    shape = {name for name in given.given if name in _SHAPES}
    one = all(given.given[name].strip() == "1" for name in shape)
    plain = all(word.partition("=")[0] in _PLAIN for word in given.step)
    return one and plain


def _step_words(given: SplitWords) -> list[str]:
    """A step by the `srun` inside the job."""
    terminal = ["--pty"] if "--pty" in given.own else []
    overlap = ["--overlap"] if "--overlap" in given.own else []
    return ["srun", *given.step, *terminal, *overlap, "--", *given.command]


_SHAPES = frozenset({"--ntasks", "--nodes", "--ntasks-per-node"})
# They change nothing for one task in an allocation of its own.
_PLAIN = _SHAPES | {
    "--cpus-per-task", "--gpus-per-task", "--chdir", "--export", "--unbuffered", "--distribution",
    "--cpu-bind", "--mem-bind", "--gpu-bind", "--overcommit",
    "--propagate",
}  # fmt: skip


def _reads(given: SplitWords) -> bool:
    return given.given.get("--input", "all").lower() != "none"


@contextmanager
def _terminal(given: SplitWords) -> Iterator[tuple[int, int] | None]:
    if "--pty" not in given.own:
        yield None
    elif sys.stdin.isatty() and sys.stdout.isatty():
        yield size()
    else:
        yield _NO_TERMINAL


def _is_raw(terminal: tuple[int, int] | None) -> bool:
    return terminal is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _passing(inside: CommandInside, *, raw: bool) -> AbstractContextManager[None]:
    """Signals go to the `srun` inside, which has the words and the rules about them. TERM and HUP
    end the tasks at once, as QUIT does there.
    """

    def passed(number: int, _frame: FrameType | None) -> None:
        inside.signal(signal.Signals(number).name.removeprefix("SIG"))

    def forcing(_number: int, _frame: FrameType | None) -> None:
        inside.signal("QUIT")

    numbers = (*_PASSED, *(() if raw else (signal.SIGINT,)))
    handlers: dict[signal.Signals, Handler] = {
        **dict.fromkeys(numbers, passed),
        **dict.fromkeys(_FORCING, forcing),
    }
    return handling(handlers)


def _signals(
    allocation: KeptAllocation, inside: CommandInside, forced: threading.Event, *, raw: bool
) -> AbstractContextManager[None]:
    """Ctrl-C once asks whether it is meant, twice within a second it ends the step, as Slurm's.
    TERM and HUP kill it at once, and set `forced`.
    """
    pressed_s = [-_TWICE_S]

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        before_s, pressed_s[0] = pressed_s[0], time.monotonic()
        if pressed_s[0] - before_s <= _TWICE_S:
            allocation.say(f"sending Ctrl-C to StepId={allocation.job_id}.0")
            inside.signal("INT")
            end()
        else:
            allocation.say("interrupt (one more within 1 sec to abort)")
            allocation.say(f"StepId={allocation.job_id}.0 task 0: running")

    def end() -> None:
        allocation.say("forcing job termination")
        allocation.say(_ABORTED)
        if not forced.is_set():
            inside.signal("TERM")
        # A thread, because the main one is reading.
        kill = {"kill": forced.is_set()}
        threading.Thread(target=allocation.cancel, kwargs=kill, daemon=True).start()

    def forcing(_number: int, _frame: FrameType | None) -> None:
        forced.set()
        end()

    def passed(number: int, _frame: FrameType | None) -> None:
        inside.signal(signal.Signals(number).name.removeprefix("SIG"))

    handlers: dict[signal.Signals, Handler] = {
        **dict.fromkeys(_FORCING, forcing),
        **dict.fromkeys(_PASSED, passed),
        **({} if raw else {signal.SIGINT: interrupt}),
    }
    return handling(handlers)


def _end_of(
    allocation: KeptAllocation, ended: exec_pb2.ExecEnded, *, alone: bool, forced: bool
) -> int:
    """The step's exit code. Where the end of the rank came first, that of the job. `alone`: the end
    of the one task is ours to tell. `forced`: we have killed it.
    """
    node = allocation.node
    if not ended.rank_ended:
        return _told(allocation, node, _code(ended)) if alone else _code(ended)
    job = allocation.final()
    if not job.HasField("exit_code") or job.exit_signal:
        if forced:
            return _told(allocation, node, exit_codes.SIGNALLED + signal.SIGKILL)
        allocation.say(_ABORTED)
        allocation.say(allocation.why_ended())
        return _told(allocation, node, exit_codes.SIGNALLED + signal.SIGTERM)
    return _told(allocation, node, job.exit_code) if alone else job.exit_code


def _code(ended: exec_pb2.ExecEnded) -> int:
    if ended.signal:
        return exit_codes.SIGNALLED + ended.signal
    return ended.exit_code if ended.HasField("exit_code") else exit_codes.FAILURE


def _told(allocation: KeptAllocation, node: str, code: int) -> int:
    if code > exit_codes.SIGNALLED:
        number = code - exit_codes.SIGNALLED
        allocation.say(f"error: {node}: task 0: {signal.strsignal(number) or number}")
    elif code:
        allocation.say(f"error: {node}: task 0: Exited with exit code {code}")
    return code


def _beside(app: App, named: str, given: SplitWords) -> int:
    """A step in a job of the caller's that runs already, such as an allocation of `salloc`."""
    jobs = Jobs(app.connection())
    try:
        found = jobs.get(one_job(jobs, own_word(named)).job_id).job
    except (NotFound, InvalidRequest):
        what = f"Unable to confirm allocation for job {named[:40]}: Invalid job id specified"
        raise InvalidRequest(what) from None
    allocation = KeptAllocation(app, "srun", quiet="--quiet" in given.own)
    allocation.job, allocation.job_id = found, found.job_id
    key = jobs.new_request_id()
    keeping = allocation.inside(holder.keep(key))
    text = holder.kept(os.environ, own_umask(), own_limits(None, "srun"))
    for at in range(0, len(text), 32 * 1024):
        keeping.stdin(text[at : at + 32 * 1024])
    keeping.end_stdin()
    for _ in keeping.outputs():
        pass
    words = [f"--chdir={os.getcwd()}", *_step_words(given)[1:]]
    with _terminal(given) as terminal:
        inside = allocation.inside(holder.step(key, words), terminal=terminal)
        with _passing(inside, raw=terminal is not None):
            ended = attended(inside, stdin=_reads(given), raw=_is_raw(terminal))
    if ended.rank_ended:
        allocation.say(_ABORTED)
    elif ended.error:
        allocation.say(f"error: {ended.error}")
    return _code(ended)
