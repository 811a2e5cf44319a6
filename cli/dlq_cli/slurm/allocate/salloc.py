"""`salloc`: nodes for as long as a command, or a shell, runs here on the host of submission.

The allocation ends with that program, at its time limit, or when this client has been gone for
[jobs] attend_silence. Then a shell gets SIGHUP; another command goes on without nodes, as in Slurm.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.allocate.allocation import Handler, KeptAllocation, handling
from dlq_cli.slurm.allocate.srun import immediate_s
from dlq_cli.slurm.allocate.words import SplitWords, split
from dlq_common.text.signals import signal_name

# Variables of a rank or a task that mean nothing here.
_OF_RANK = frozenset(
    {
        "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID",
        "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
        "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_STEPID",
    }
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """Allocate, run the command (or the user's shell) here, and give the nodes back."""
    given = split(words, "salloc")
    no_shell = "--no-shell" in given.own
    shell = not given.command
    allocation = KeptAllocation(app, "salloc", quiet="--quiet" in given.own)
    if shell and not no_shell and not _may_read():
        allocation.say("error: no controlling terminal: please set --no-shell")
        raise exit_codes.Ended(exit_codes.FAILURE)
    patience_s = immediate_s(given)
    name = "no-shell" if no_shell else "interactive"
    allocation.submit(given.allocation, name, attended=not no_shell)
    with allocation.kept() if not no_shell else allocation.unkept():
        allocation.wait(patience_s)
        allocation.say(f"Granted job allocation {allocation.job_id}")
        code = 0 if no_shell else _here(allocation, given)
    if code:
        raise exit_codes.Ended(code)


def _may_read() -> bool:
    """Whether a shell can read its stdin: a pipe, a file, or a terminal that is ours."""
    if not sys.stdin.isatty():
        return True
    with suppress(OSError):  # it is no controlling terminal
        return os.tcgetpgrp(0) == os.getpgrp()
    return False


def _here(allocation: KeptAllocation, given: SplitWords) -> int:
    """Run the program on this host, and relinquish the allocation with its exit code."""
    command = given.command or [_shell()]
    wanted = {**os.environ, **_variables(allocation)}
    own_group = sys.stdin.isatty()
    try:
        program = subprocess.Popen(command, env=wanted, process_group=0 if own_group else None)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = f'_fork_command: Unable to find command "{command[0]}"' if missing else error
        allocation.say(f"error: {what}")
        _relinquish(allocation, exit_codes.FAILURE)
        return exit_codes.FAILURE
    kill = _kill_signal(given)

    def revoked(_job: job_pb2.Job) -> None:
        if allocation.job.state == job_pb2.JOB_STATE_TIMED_OUT:
            allocation.say(f"{allocation.why_ended()} and its allocation has been revoked.")
        allocation.say(f"Job allocation {allocation.job_id} has been revoked.")
        with suppress(OSError):
            if own_group and not given.command:
                os.killpg(program.pid, signal.SIGHUP)
                os.killpg(program.pid, signal.SIGCONT)
            elif kill:
                program.send_signal(kill)

    allocation.on_end = revoked
    if allocation.ended.is_set():
        revoked(allocation.job)
    with _foreground(program.pid if own_group else None), _ours_ignored(program):
        code = program.wait()
    allocation.on_end = lambda _job: None
    code = code if code >= 0 else exit_codes.SIGNALLED - code
    if not allocation.ended.is_set():
        _relinquish(allocation, code)
    return code


def _relinquish(allocation: KeptAllocation, code: int) -> None:
    allocation.say(f"Relinquishing job allocation {allocation.job_id}")
    allocation.finish(code)


def _kill_signal(given: SplitWords) -> int:
    """The signal of --kill-command; 0: the command is not told of the end."""
    text = given.given.get("--kill-command", given.given.get("--kill-on-bad-exit"))
    return 0 if text is None else signal.Signals[f"SIG{signal_name(text or 'TERM')}"].value


def _shell() -> str:
    return os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"


def _variables(allocation: KeptAllocation) -> Mapping[str, str]:
    """The allocation's own variables, as its first node has them."""
    said = allocation.output_of(holder.environment()).decode("utf-8", "surrogateescape")
    found = dict(entry.partition("=")[::2] for entry in said.split("\0") if "=" in entry)
    ours = {name: value for name, value in found.items() if name.startswith("SLURM_")}
    ours = {name: value for name, value in ours.items() if name not in _OF_RANK}
    return {
        **ours, "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_SUBMIT_HOST": socket.gethostname(),
    }  # fmt: skip


@contextmanager
def _foreground(group: int | None) -> Iterator[None]:
    """The program has the terminal, keys and all; then it is ours again."""
    if group is None:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with suppress(OSError):
            os.tcsetpgrp(0, group)
            os.killpg(group, signal.SIGCONT)  # it may have read too early, and been stopped
        yield
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ours_ignored(program: subprocess.Popen[bytes]) -> AbstractContextManager[None]:
    """Ctrl-C is the program's affair; a signal that would end us ends it."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):
            program.send_signal(number)

    handlers: dict[signal.Signals, Handler] = {
        signal.SIGINT: signal.SIG_IGN,
        signal.SIGQUIT: signal.SIG_IGN,
        signal.SIGTERM: pass_on,
        signal.SIGHUP: pass_on,
    }
    return handling(handlers)
