"""A job's terminal shown in our own: our keys go to the job, its screen comes to us.

When the line is cut, or a daemon restarts, the job's programs go on, and this client comes back to
them. `dlq logs` has the output of that time. Our terminal is as before at every end.
"""

from __future__ import annotations

import os
import sys
import threading

from dlq.v1 import exec_pb2
from dlq_cli.app import App
from dlq_cli.interactive.rank_stdin import ATTACH, running_attempt, still_runs
from dlq_cli.interactive.stdin_reader import StdinReader
from dlq_cli.interactive.terminal import STDIN, raw_terminal, size
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, TryAgain, Unavailable

_AGAIN_S = 0.5


class JobTerminal:
    """The screen and the keys of one job."""

    def __init__(self, app: App, job_id: str) -> None:
        self._app = app
        self._job_id = job_id
        self._inside: CommandInside | None = None
        self._keys = StdinReader(STDIN, take=self._type)

    def stay(self) -> None:
        """Show the terminal from the start of the job's programs to their end. Call it once."""
        try:
            self._stay()
        finally:
            self._keys.stop()

    def _stay(self) -> None:
        attempt, told = running_attempt(self._app.connection(), self._job_id), False
        while attempt and not self._shown(told=told):
            told = True
            threading.Event().wait(_AGAIN_S)
            if not still_runs(Jobs(self._app.connection()), self._job_id, attempt):
                return

    def _shown(self, *, told: bool) -> bool:
        """Show the screen until the job's end; False: the line was cut, or the job has no terminal
        yet.
        """
        kind = os.environ.get("TERM", "")
        inside = CommandInside(
            self._app.connection(), self._job_id, ATTACH, terminal=size(), terminal_type=kind
        )
        try:
            with raw_terminal(inside.resize):
                self._inside = inside
                self._keys.start()
                ended = self._print_all(inside)
        except (Unavailable, TryAgain, IllegalTransition) as error:
            if not told and not isinstance(error, IllegalTransition):
                self._app.say(f"{error.what}; the job goes on, and this terminal comes back to it")
            return False
        finally:
            self._inside = None
            inside.kill()
        return ended.rank_ended or ended.exit_code == 0

    def _print_all(self, inside: CommandInside) -> exec_pb2.ExecEnded:
        for output in inside.outputs():
            if output.HasField("ended"):
                return output.ended
            sys.stdout.buffer.write(output.stdout)
            sys.stdout.buffer.flush()
        return exec_pb2.ExecEnded()

    def _type(self, keys: bytes) -> None:
        """Send keys to the job. Keys that are pressed while the line is cut are lost."""
        if (inside := self._inside) is not None:
            inside.stdin(keys)
