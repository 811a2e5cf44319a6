"""The main process of a rank with `compat = "slurm"`: the counterpart of slurmstepd.

It runs the job's own program. Signals go to the steps that `srun` has started, or without steps to
the program itself. A batch script does not survive the signal that is meant for its steps.
`scontrol requeue` makes it end the rank with exit code 99, "run me again".
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import List, Optional, Set

from dlq_compat import control
from dlq_compat.signals import FORWARDED, catch, end_as

REQUEUE_EXIT_CODE = 99
KILL_WAIT_S = 5.0
"""Seconds from the signal of a requeue to the end. Slurm waits for 30 s, on GPUs that idle."""

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def main(arguments: List[str]) -> int:
    """Run a command as the rank's; its exit code, or 99. A signal that ended it ends us, too."""
    if not arguments:
        print("dlq: batch: there is nothing to run", file=sys.stderr)
        return 2
    return end_as(BatchStep(_fifo_path()).run(arguments))


class BatchStep:
    """One program, its steps, and the words about them."""

    def __init__(self, fifo: str) -> None:
        """`fifo` is the path at which the rank's programs speak; an existing file there is
        replaced.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fifo)
        os.mkfifo(fifo, 0o600)
        # Opened for writing too: so it never reads as ended.
        self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._path = fifo
        self._heard = b""
        self._steps: Set[int] = set()
        self._end_s: Optional[float] = None
        self._program: Optional["subprocess.Popen[bytes]"] = None

    def run(self, arguments: List[str]) -> int:
        """Start the program and stay until it has ended; negative: by that signal."""
        awake = catch((*FORWARDED, signal.SIGCHLD))
        try:
            self._program = subprocess.Popen(
                arguments, env={**os.environ, control.CONTROL: self._path}
            )
        except OSError as error:
            print("dlq: cannot run %s: %s" % (arguments[0], error.strerror), file=sys.stderr)
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            return _NOT_FOUND if missing else _NOT_EXECUTABLE
        while True:
            code = self._program.poll()
            if code is not None:
                self._listen()  # a request that came just before the end
                return code if self._end_s is None else REQUEUE_EXIT_CODE
            left_s = None if self._end_s is None else self._end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self._send(signal.SIGKILL)
                self._program.kill()
                return REQUEUE_EXIT_CODE  # other processes end with the rank
            ready, _, _ = select.select([awake, self._fifo], [], [], left_s)
            if self._fifo in ready:
                self._listen()
            if awake in ready:
                for number in os.read(awake, 512):
                    if number != signal.SIGCHLD:
                        self._send(number)

    def _listen(self) -> None:
        try:
            self._heard += os.read(self._fifo, 65536)
        except BlockingIOError:
            return
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._take(line.decode("ascii", "replace").split())

    def _take(self, words: List[str]) -> None:
        verb, number, *_ = [*words, "", ""]
        if verb == control.STEP and number.isdigit():
            self._steps.add(int(number))
        elif verb == control.LEFT and number.isdigit():
            self._steps.discard(int(number))
        elif verb == control.REQUEUE and self._end_s is None:
            self._end_s = time.monotonic() + KILL_WAIT_S
            self._send(signal.SIGCONT)
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        """Send the signal to the living steps, else to the program."""
        assert self._program is not None
        reached = [pid for pid in sorted(self._steps) if self._reaches(pid, number)]
        if not reached:
            self._reaches(self._program.pid, number)

    def _reaches(self, pid: int, number: int) -> bool:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            self._steps.discard(pid)
            return False
        return True


def _fifo_path() -> str:
    """The path in the job's own directory, which ends with the attempt, where there is one."""
    beat = os.environ.get("DLQ_BEAT_FILE")
    directory = os.path.dirname(beat) if beat else tempfile.mkdtemp(prefix="dlq-slurm-")
    return os.path.join(directory, "slurm")
