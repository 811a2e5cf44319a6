"""The cluster as the demo's acts see it: submit, look, wait for something to hold."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import processes
from cluster import Cluster, wait_until
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.queues import Queues
from dlq_common.errors import DlqError
from proof import ProofFailed
from screen import Screen
from work import Work

LONGEST_S = 600.0  # no act of the demo takes as long, on a busy machine either


class Stage:
    """Jobs by training; `jobs` is the last seen state of all of them."""

    def __init__(self, cluster: Cluster, connection: Connection, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.jobs: Sequence[job_pb2.Job] = []
        self.cgroups: set[str] = set()
        self._client = Jobs(connection)
        self._queues = Queues(connection)
        self._ids: dict[str, str] = {}

    def submit(self, work: Work) -> None:
        """Submit one job, as a user would."""
        out = self.out(work)
        out.mkdir(parents=True)
        self._ids[work.name] = self.cluster.dlq(*work.submission(out)).strip()
        self.screen.say(f"dlq submit: job {self._ids[work.name]} is {work}")

    def command(self, name: str, *works: Work) -> str:
        """A command of `dlq` about some jobs, such as `dlq pause 3 4`; its output."""
        ids = [self._ids[work.name] for work in works]
        self.screen.say(f"dlq {name} {' '.join(ids)}")
        return self.cluster.dlq(name, *ids)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Show the jobs until something holds; a master that is away is waited for."""

        def look() -> bool:
            try:
                self.jobs = self._client.list().jobs
            except DlqError:
                return False
            self.screen.show(self.jobs)
            self._refuse_failures()
            return holds()

        wait_until(look, what, patience_s=LONGEST_S)

    def _refuse_failures(self) -> None:
        failed = [job for job in self.jobs if job.state == job_pb2.JOB_STATE_FAILED]
        if failed:
            output = self.cluster.dlq("logs", failed[0].job_id)
            raise ProofFailed(f"job {failed[0].job_id}, {failed[0].name}, failed:\n{output}")

    def out(self, work: Work) -> Path:
        """Where a job leaves its losses and weights."""
        return self.cluster.root / "out" / work.name

    def job(self, work: Work) -> job_pb2.Job:
        """The last seen state of one job."""
        return next(job for job in self.jobs if job.job_id == self._ids[work.name])

    def running(self, *works: Work) -> bool:
        """Whether all of them run."""
        return all(self.job(work).attempt_state == job_pb2.ATTEMPT_STATE_RUNNING for work in works)

    def ended(self, *works: Work) -> bool:
        """Whether all of them have ended."""
        return all(self.job(work).HasField("end_time") for work in works)

    def paused(self, *works: Work) -> bool:
        """Whether all of them are off their GPUs by a user's wish."""
        return all(
            self.job(work).hold_kind == job_pb2.HOLD_KIND_PAUSED
            and not self.job(work).HasField("attempt_state")
            for work in works
        )

    def ended_ids(self) -> set[str]:
        """The jobs that have ended."""
        return {job.job_id for job in self.jobs if job.HasField("end_time")}

    def processes(self) -> dict[tuple[str, str, str], int]:
        """The training processes on this machine; where they are kept is remembered."""
        found = processes.of_jobs(self.cluster.root)
        for pid in found.values():
            self.cgroups |= processes.cgroups_of(pid)
        return found

    def epoch(self) -> int:
        """The start of the master that answers."""
        return self._queues.cluster().epoch

    def trail(self, job_id: str) -> list[str]:
        """The nodes of a job's attempts, in order."""
        attempts = self._client.get(job_id).attempts
        return ["+".join(rank.node_id for rank in attempt.ranks) for attempt in attempts]

    def losses(self) -> dict[str, float]:
        """The last loss of each job, by its id."""
        return {
            job_id: _last_loss(self.cluster.root / "out" / name / "loss.jsonl")
            for name, job_id in self._ids.items()
        }


def _last_loss(path: Path) -> float:
    return float(json.loads(path.read_text().splitlines()[-1])["loss"])
