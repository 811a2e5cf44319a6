"""The word to the master that the client of an interactive job is there, every few seconds.

While the line is cut nothing is said: the master ends the job after [jobs] attend_silence. A master
that restarts counts anew. When this process is killed, nobody says it any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dlq.v1 import job_pb2
from dlq_cli.words import has_ended
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_common.errors import DlqError, NotFound

EVERY_S = 5.0


class Attendance:
    """A thread that keeps one job, from `begin` to `end`."""

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        on_end: Callable[[job_pb2.Job], None],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        """`on_end` is called once, by the thread, when the job is seen to have ended."""
        self._jobs = Jobs(connection)
        self._job_id = job_id
        self._on_end = on_end
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="attendance")

    def __enter__(self) -> Attendance:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _keep(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                job = self._jobs.attend(self._job_id)
            except NotFound:
                return
            except (DlqError, ValueError):  # ValueError: the channel is closed
                continue
            if has_ended(job) and not self._over.is_set():
                self._on_end(job)
                return
