"""A cluster as its user sees it: commands of `dlq` to act, the client to wait."""

import json
from collections.abc import Callable
from typing import Any

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.watch import read_log
from dlq_common.errors import DlqError, Unavailable
from support.waiting import wait_while_it_moves

# A machine at its limit may import a framework for minutes; whoever says nothing for longer hangs.
STILL_S = 300.0

Dlq = Callable[..., str]


class UsersView:
    """Acts by `dlq(*arguments)`, which returns what the command printed."""

    def __init__(self, dlq: Dlq, connection: Connection) -> None:
        self.dlq = dlq
        self._connection = connection
        self._jobs = Jobs(connection)

    def submit(self, *arguments: str) -> str:
        """The id of a new job."""
        return self.dlq("submit", "--parsable", *arguments).strip()

    def wait(self, job_id: str, holds: Callable[[job_pb2.Job], bool], what: str) -> job_pb2.Job:
        """The job once something holds for it; AssertionError with its story when it ends before,
        or when neither its record nor its output has changed for STILL_S.
        """

        def look() -> job_pb2.Job | None:
            try:
                job = self._jobs.get(job_id).job
            except Unavailable:
                return None
            if holds(job):
                return job
            assert not job.HasField("end_time"), f"job {job_id} ended before this: {what}"
            return None

        try:
            job = wait_while_it_moves(
                look, lambda: self._progress(job_id), what=what, still_s=STILL_S
            )
        except AssertionError as never:
            raise AssertionError(f"{never}\n{self.tale(job_id)}") from None
        assert job is not None
        return job

    def wait_for_end(self, job_id: str) -> job_pb2.Job:
        """The job once it has ended, in whatever way."""
        return self.wait(job_id, lambda job: job.HasField("end_time"), f"job {job_id} ends")

    def show(self, job_id: str) -> dict[str, Any]:
        """`dlq show --json` of one job."""
        (job,) = json.loads(self.dlq("show", "--json", job_id))["jobs"]
        assert isinstance(job, dict)
        return job

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """`dlq events --json` of one job, oldest first."""
        found = json.loads(self.dlq("events", "--json", job_id))["events"]
        assert isinstance(found, list)
        return found

    def tale(self, job_id: str) -> str:
        """What people would look at when a job does not do what it should."""
        return self.dlq("events", job_id) + self.output(job_id)

    def output(self, job_id: str, attempt: int = 0, node_rank: int = 0) -> str:
        """What one rank of an attempt (0: the last) has written; empty as long as there is
        nothing.
        """
        pieces = read_log(
            self._connection, job_id, attempt=attempt, node_rank=node_rank, outage_s=0.0
        )
        try:
            return b"".join(piece.data for piece in pieces).decode(errors="replace")
        except DlqError:
            return ""

    def _progress(self, job_id: str) -> object:
        try:
            version = self._jobs.get(job_id).job.version
        except Unavailable:
            version = -1
        return version, len(self.output(job_id))
