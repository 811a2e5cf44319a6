"""The cluster as the demo's acts see it: submit, look, wait for something to hold."""

import json
from collections.abc import Callable
from pathlib import Path

import processes
from cluster import Cluster, wait_until
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from screen import Screen
from work import Work

LONGEST_S = 150.0  # no act of the demo takes as long


class Stage:
    """Jobs by what they train; `jobs` is what was last seen of all of them."""

    def __init__(self, cluster: Cluster, client: Jobs, screen: Screen) -> None:
        self.cluster = cluster
        self.screen = screen
        self.jobs: list[job_pb2.Job] = []
        self._client = client
        self._ids: dict[str, str] = {}

    def submit(self, work: Work) -> None:
        """Submit one job, as a user would."""
        out = self.out(work)
        out.mkdir(parents=True)
        self._ids[work.name] = self.cluster.dlq(*work.submission(out)).strip()
        shape = f"{work.nodes} nodes x {work.gpus}" if work.nodes > 1 else str(work.gpus)
        self.screen.say(f"submitted job {self._ids[work.name]}: {work.name} on {shape} GPUs")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Show the jobs until something holds; a master that is away is waited for."""

        def look() -> bool:
            try:
                self.jobs = list(self._client.list().jobs)
            except DlqError:
                return False
            self.screen.show(self.jobs)
            return holds()

        wait_until(look, what, patience_s=LONGEST_S)

    def out(self, work: Work) -> Path:
        """Where a job leaves its losses and weights."""
        return self.cluster.root / "out" / work.name

    def job(self, work: Work) -> job_pb2.Job:
        """What was last seen of one job."""
        return next(job for job in self.jobs if job.job_id == self._ids[work.name])

    def running(self, work: Work) -> bool:
        return self.job(work).attempt_state == job_pb2.ATTEMPT_STATE_RUNNING

    def ended(self, work: Work) -> bool:
        return self.job(work).HasField("end_time")

    def ended_ids(self) -> set[str]:
        """The jobs that have ended."""
        return {job.job_id for job in self.jobs if job.HasField("end_time")}

    def processes(self) -> dict[tuple[str, str, str], int]:
        """The training processes on this machine."""
        return processes.of_jobs(self.cluster.root)

    def nodes_of(self, work: Work) -> list[str]:
        """The nodes of a job's attempts, in order."""
        attempts = self._client.get(self._ids[work.name]).attempts
        return [attempt.ranks[0].node_id for attempt in attempts]

    def losses(self) -> dict[str, float]:
        """The last loss of each job, by its id."""
        return {
            job_id: _last_loss(self.cluster.root / "out" / name / "loss.jsonl")
            for name, job_id in self._ids.items()
        }


def _last_loss(path: Path) -> float:
    return float(json.loads(path.read_text().splitlines()[-1])["loss"])
