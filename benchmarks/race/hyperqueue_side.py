"""HyperQueue as another side of the race: its server, its workers and its client in one process.

    python -m benchmarks.race.hyperqueue_side DIRECTORY WORKERS CORES submit|run JOBS

HyperQueue is a task runner in Rust for one user. This package keeps its jobs in memory alone.
Nothing separates the jobs from each other. So its figures are a floor for a job's process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from benchmarks.race.clients import Clients

PACKAGE = "hyperqueue"


class HyperQueueSide:
    """One cluster with a client that does its work once for each `go`."""

    name = "hyperqueue"

    def __init__(self, root: Path, workers: int, cores: int, does: str, jobs: int) -> None:
        root.mkdir(parents=True)
        module = "benchmarks.race.hyperqueue_side"
        words = [sys.executable, "-m", module, str(root), *map(str, (workers, cores, does, jobs))]
        self._client = Clients([words], os.environ)

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def go(self) -> float:
        """Seconds until all jobs are accepted, or have ended."""
        return self._client.go()

    def groups(self) -> Mapping[str, list[int]]:
        """The roots of its tree; as controller its only process."""
        return {self.name: self._client.pids, f"{self.name} controller": self._client.pids}


def missing() -> str:
    """The package that this side lacks here; empty: none."""
    return "" if find_spec(PACKAGE) else f"pip install {PACKAGE}"


def _jobs(directory: Path, count: int) -> list[Any]:
    made = import_module(PACKAGE).Job
    jobs = [made(directory) for _ in range(count)]
    for job in jobs:
        job.program(["true"], stdout=None, stderr=None)
    return jobs


def _serve(directory: Path, workers: int, cores: int, does: str, count: int) -> None:
    package = import_module(PACKAGE)
    config = import_module(f"{PACKAGE}.cluster").WorkerConfig(cores=cores)
    with package.LocalCluster(str(directory)) as cluster:
        for _ in range(workers):
            cluster.start_worker(config)
        client = cluster.client()
        print("ready", flush=True)
        while sys.stdin.readline().strip() == "go":
            told = [client.submit(job) for job in _jobs(directory, count)]
            if does == "run":
                client.wait_for_jobs(told)
            print("done", flush=True)


def _as_worded(words: list[str]) -> None:
    directory, workers, cores, does, count = words
    # The library prints a table and a bar of its own; the words of `Clients` stay alone on stdout.
    kept = os.dup(1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.stdout = os.fdopen(kept, "w")
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        _serve(Path(directory), int(workers), int(cores), does, int(count))


if __name__ == "__main__":
    _as_worded(sys.argv[1:])
