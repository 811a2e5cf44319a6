"""A cluster of virtual GPUs as its `dlq` command tells of it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from cluster import Cluster, wait_until
from dlq_cli.exit_codes import OK
from proof import ProofFailed
from screen import Screen

ENOUGH_S = 600.0  # a hanging command hangs for ever; a busy machine takes its time
ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})

Job = Mapping[str, Any]


class Site:
    """The cluster, and the report on the way."""

    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self.cluster, self.screen = cluster, screen

    def submitted(
        self, name: str, *words: str, may: frozenset[int] = frozenset({OK})
    ) -> tuple[int, Job]:
        """The exit code of `dlq submit`, which is one of `may`, and the job."""
        done = self.cluster.ask("dlq", "submit", "--json", "-J", name, "-D", "/tmp", *words)
        if done.returncode not in may:
            raise ProofFailed(f"{name} was not taken: {done.stderr}")
        (job,) = json.loads(done.stdout)["jobs"]
        return done.returncode, job

    def jobs(self) -> list[Job]:
        jobs: list[Job] = self.told("jobs", "status", "--since", "all")
        return jobs

    def job(self, job_id: str) -> Job:
        return next(job for job in self.jobs() if job["job_id"] == job_id)

    def events(self, job_id: str) -> list[Job]:
        events: list[Job] = self.told("events", "events", job_id)
        return events

    def told(self, what: str, *words: str) -> Any:
        """One key of a command's JSON output."""
        return json.loads(self.cluster.dlq(*words, "--json"))[what]

    def until(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: bool(holds()), what, patience_s=ENOUGH_S)
