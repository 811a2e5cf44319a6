"""What a user has been told stays true at the next leader: of each job, and of its journal.

A leader may only tell of turns that are committed. So a later answer, of any master, never goes
back: no job is gone, none has an older version, no end is another one, and no event is missing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dlq.v1 import event_pb2, job_pb2
from dlq_client.jobs import Jobs
from support.harness import Daemons

PAUSES_S: Final = (0.05, 0.3)


class SeenJob(NamedTuple):
    """A job as an answer told it."""

    version: int
    state: int
    attempts: int
    exit_code: int | None
    ended: bool


class SeenReads:
    """All answers so far, and every answer that went back behind an earlier one."""

    def __init__(self) -> None:
        self.answers = 0
        self.wrongs: list[str] = []
        self.jobs: dict[str, SeenJob] = {}
        self._journals: dict[str, list[int]] = {}
        self._cursor = 0

    def listed(self, jobs: Iterable[job_pb2.Job], cursor: int) -> None:
        """All jobs were told, as of this place in the journal."""
        self.answers += 1
        told = {job.job_id: _seen(job) for job in jobs}
        if cursor < self._cursor:
            self.wrongs.append(f"the journal ended at {self._cursor}, and then at {cursor}")
        for job_id in self.jobs.keys() - told.keys():
            self.wrongs.append(f"job {job_id} was told, and then it was not")
        for job_id in self.jobs.keys() & told.keys():
            before, now = self.jobs[job_id], told[job_id]
            if now.version < before.version or now.attempts < before.attempts:
                self.wrongs.append(f"job {job_id} was {before}, and then {now}")
            elif now.version == before.version and now != before:
                self.wrongs.append(f"job {job_id} was {before}, and {now} in the same version")
            elif before.ended and now._replace(version=before.version) != before:
                self.wrongs.append(f"job {job_id} has ended as {before}, and then as {now}")
        self.jobs, self._cursor = self.jobs | told, max(cursor, self._cursor)

    def told_events(self, job_id: str, events: Sequence[event_pb2.Event]) -> None:
        """The whole journal of a job was told."""
        self.answers += 1
        told, before = [event.sequence for event in events], self._journals.get(job_id, [])
        if told[: len(before)] != before:
            self.wrongs.append(f"the journal of job {job_id} was {before}, and then {told}")
        self._journals[job_id] = told


def _seen(job: job_pb2.Job) -> SeenJob:
    code = job.exit_code if job.HasField("exit_code") else None
    return SeenJob(job.version, job.state, job.attempt_count, code, job.HasField("end_time"))


class Reading(threading.Thread):
    """A user who only looks, from the first takeover to the last."""

    def __init__(self, daemons: Daemons, seed: int) -> None:
        super().__init__(name="reading")
        self._daemons, self._chance = daemons, random.Random(f"{seed}/reading")
        self._enough = threading.Event()
        self.seen = SeenReads()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Finish the look at hand, then leave."""
        self._enough.set()

    def run(self) -> None:
        try:
            with self._daemons.connect() as line:
                jobs = Jobs(line)
                while not self._enough.wait(self._chance.uniform(*PAUSES_S)):
                    self._look(jobs)
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure

    def _look(self, jobs: Jobs) -> None:
        told = jobs.list(user="*")
        self.seen.listed(told.jobs, told.cursor)
        if self.seen.jobs:
            # Those of late change between two answers, and are behind in a database that lags.
            late = sorted(self.seen.jobs, key=int)[-20:]
            job_id = self._chance.choice(late)
            self.seen.told_events(job_id, list(jobs.events(job_id)))
