"""An allocation from its submission to its end, in Slurm's own words on stderr."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.jobs.submitted import send_spec
from dlq_cli.interactive.attendance import Attendance
from dlq_cli.jobs.slurm_settled import patiently
from dlq_cli.output.said import SlurmSays, say_line
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.jobs.origin import origin_of
from dlq_cli.slurm.sbatch import is_lenient, spec_of
from dlq_cli.spec.caller import own_limits
from dlq_cli.spec.message import to_message
from dlq_cli.spec.slurm.sbatch import read_words
from dlq_cli.spec.values.given import Notes
from dlq_cli.words import has_ended, shown_state
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_jobs
from dlq_common.errors import DlqError, TryAgain, Unavailable, Unsatisfiable
from dlq_common.text.wire import to_duration

WAITING = frozenset({"pending", "queued", "held"})
RUNNING = frozenset({"running", "profiling", "pausing"})
_IMPOSSIBLE = "Unable to allocate resources: Requested node configuration is not available"
_SUBMISSION = ("Batch job submission failed", "Unable to allocate resources")
_BUSY = "Unable to allocate resources: Requested nodes are busy"
_OUTAGE_S = 60.0
_KILL_WAIT_S = 30.0  # from SIGTERM to SIGKILL, as KillWait
_OVER = "Job/step already completing or completed"


class Interrupted(Exception):
    """A signal has come while the client waited."""


class KeptAllocation:
    """One job of a client that stays with it; `program` is the name before each message."""

    def __init__(self, app: App, program: str, *, quiet: bool = False) -> None:
        self._app = app
        self._program = program
        self._quiet = quiet
        self.job_id = ""
        self.job = job_pb2.Job()
        self.node = "node"
        """Its first node, once it has one."""
        self.spec = job_pb2.JobSpec()
        """The spec that it was submitted with."""
        self.ended = threading.Event()
        self.on_end: Callable[[job_pb2.Job], None] = lambda _job: None

    def say(self, text: str) -> None:
        """A message as Slurm's; --quiet leaves all but errors out. A closed terminal is no error,
        because the nodes are given back after it.
        """
        if not self._quiet or text.startswith("error:"):
            with suppress(OSError):
                say_line(f"{self._program}: {text}")

    def submit(
        self, words: Sequence[str], name: str, *, attended: bool = True, limits: str | None = None
    ) -> None:
        """Queue it by options of sbatch; `limits` is --propagate."""
        named = [] if any(word.startswith("--job-name") for word in words) else [name]
        wished = [*words, *(f"--job-name={each}" for each in named), "--output=/dev/null"]
        options, _ = read_words([*wished, f"--wrap={holder.HOLD}"], self._program)
        notes = Notes()
        lenient = is_lenient(self._app, {option.name for option in options})
        with self._in_own_words():
            spec = spec_of(options, (), notes, lenient=lenient, program=self._program)
        for note in notes:
            self.say(note)
        message = self.spec = to_message(spec)
        message.resources.node_count = max(1, message.resources.node_count)
        message.interactive.attended = attended
        message.soft_limits.update(own_limits(limits, self._program))
        message.origin.CopyFrom(origin_of(self._program, words))
        message.preempt.grace_duration.CopyFrom(to_duration(_KILL_WAIT_S))
        try:
            with self._in_own_words():
                key = Jobs(self._app.connection()).new_request_id()
                answer = patiently(
                    self._app,
                    lambda: send_spec(self._app, spec, message, "", request_id=key),
                    self._program,
                )
        except Unsatisfiable as error:
            error.what = _IMPOSSIBLE
            raise
        self.job, self.job_id = answer.job, answer.job.job_id

    @contextmanager
    def _in_own_words(self) -> Iterator[None]:
        """Inside, an error in the words of sbatch names this program instead."""
        try:
            yield
        except SlurmSays as error:
            lines = (line.replace(*_SUBMISSION, 1) for line in error.lines)
            own = [line.replace("sbatch: ", f"{self._program}: ", 1) for line in lines]
            raise SlurmSays(*own, code=error.code) from None

    @contextmanager
    def kept(self, *, watched: bool = True) -> Iterator[None]:
        """Inside, the master hears that we are there; `on_end` is called once at the job's end.
        `watched`: at once, else within seconds. A watch is a stream of its own.

        A Ctrl-C that ends the caller ends the allocation: its nodes do not wait for the silence.
        """
        with Attendance(self._app.connection(), self.job_id, self._has_ended):
            if watched:
                threading.Thread(target=self._watch, daemon=True, name="allocation").start()
            try:
                yield
            except KeyboardInterrupt:  # where no handler of ours stands, as just after the grant
                self.cancel()
                raise

    @contextmanager
    def unkept(self) -> Iterator[None]:
        """Inside, the master hears nothing: the allocation lives to its time limit."""
        yield

    @property
    def waits(self) -> bool:
        """Whether it has not been given its nodes."""
        return shown_state(self.job) in WAITING

    def wait(self, immediate_s: float | None) -> None:
        """Until its nodes are there and its script runs. Ended: it was revoked, or not immediate
        enough.
        """
        queued = self.waits
        clock = self._app.connection().clock
        until_s = None if immediate_s is None else clock.boottime_s() + immediate_s
        if queued and immediate_s == 0.0:
            raise self._too_busy()
        try:
            with interruptible():  # before the first word, which may be answered by Ctrl-C
                if queued and immediate_s is None:
                    self._tell_wait()
                self._wait(until_s, told=queued and immediate_s is None)
        except Interrupted:
            self.cancel()
            self.say(
                "Job aborted due to signal"
                if self._program == "salloc"
                else f"Job allocation {self.job_id} has been revoked"
            )
            raise exit_codes.Ended(exit_codes.FAILURE) from None

    def _tell_wait(self) -> None:
        if self._program == "salloc":
            self.say(f"Pending job allocation {self.job_id}")
        self.say(f"job {self.job_id} queued and waiting for resources")

    def _wait(self, until_s: float | None, *, told: bool) -> None:
        lost = lambda error: self.say(f"{error.what}; still trying")  # noqa: E731
        allocated = not self.waits
        connection = self._app.connection()
        for job in watch_jobs(connection, [self.job_id], until_s=until_s, on_lost=lost):
            self.job = job
            self.node = next(iter(job.node_ids), self.node)
            if has_ended(job):
                raise self._revoked(waited=not allocated)
            if not allocated and not self.waits:
                allocated, until_s = True, None
                if told:
                    self.say(f"job {self.job_id} has been allocated resources")
            if shown_state(job) in RUNNING:
                return
        if not allocated:
            raise self._too_busy()
        self._wait(None, told=False)

    def _too_busy(self) -> exit_codes.Ended:
        self.cancel()
        self.say(f"error: {_BUSY}")
        if self._program == "salloc":
            self.say(f"Job allocation {self.job_id} has been revoked.")
        word = os.environ.get("SLURM_EXIT_IMMEDIATE", "")
        asked = word.isdecimal() and len(word) < 10
        return exit_codes.Ended(int(word) & 0xFF if asked else exit_codes.FAILURE)

    def _revoked(self, *, waited: bool) -> exit_codes.Ended:
        self.say("Job has been cancelled" if waited else self.why_ended())
        if self._program == "salloc":
            self.say(f"Job allocation {self.job_id} has been revoked.")
            self.say(f"error: Job submit/allocate failed: {_OVER}")
        else:
            self.say(f"error: Unable to allocate resources: {_OVER}")
        return exit_codes.Ended(exit_codes.FAILURE)

    def why_ended(self) -> str:
        """The cause of its end, for people."""
        return {
            "timed_out": f"Job {self.job_id} has exceeded its time limit",
            "cancelled": f"Job {self.job_id} has been cancelled",
        }.get(shown_state(self.job), f"Job {self.job_id} has ended: {self.job.end_reason}")

    def inside(
        self, command: list[str], *, terminal: tuple[int, int] | None = None
    ) -> CommandInside:
        """Begin a command on its first node."""
        kind = os.environ.get("TERM", "") if terminal else ""
        return CommandInside(
            self._app.connection(), self.job_id, command,
            terminal=terminal, terminal_type=kind, kept=True, tell=self.say,
        )  # fmt: skip

    def output_of(self, command: list[str]) -> bytes:
        """All that a command prints in it. The command may run twice: where the line is cut, or a
        daemon restarts, it is run again.
        """
        patience = self._app.connection().patience(_OUTAGE_S)
        while True:
            inside = self.inside(command)
            inside.end_stdin()
            try:
                return b"".join(output.stdout for output in inside.outputs())
            except (Unavailable, TryAgain):
                if self.ended.is_set() or not patience.wait():
                    raise

    def finish(self, code: int) -> None:
        """End it with an exit code; where that cannot be told it is cancelled."""
        try:
            self.output_of(holder.end(code))
        except DlqError:
            self.cancel()

    def cancel(self, *, kill: bool = False) -> None:
        """End it now. A master that is away ends it once it is back, by the silence."""
        try:
            Jobs(self._app.connection()).cancel(self.job_id, kill=kill)
        except DlqError as error:
            self.say(f"error: {error.what}")

    def final(self) -> job_pb2.Job:
        """The job once it has ended."""
        for job in watch_jobs(self._app.connection(), [self.job_id]):
            self.job = job
            if has_ended(job):
                break
        return self.job

    def _watch(self) -> None:
        try:
            for job in watch_jobs(self._app.connection(), [self.job_id]):
                if has_ended(job):
                    self._has_ended(job)
                    return
        except (DlqError, ValueError):
            pass  # the word about its end comes by the attendance

    def _has_ended(self, job: job_pb2.Job) -> None:
        if not self.ended.is_set():
            self.job = job
            self.ended.set()
            self.on_end(job)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Inside, signals have these handlers; afterwards those from before."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, each signal that ends programs raises Interrupted; afterwards they are ignored until
    somebody handles them again.
    """

    def raised(_number: int, _frame: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted

    before = {each: signal.signal(each, raised) for each in _ENDING}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)
