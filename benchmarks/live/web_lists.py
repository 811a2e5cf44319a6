"""Lists and the queue page of `dlq web` with 100,000 jobs that wait, and as many that have ended.

    python -m benchmarks.live.web_lists [--jobs N] [--ended N] [--reads N] [--json]

A real master with a real `dlq web`, asked by one client over loopback. Each list is read `--reads`
times, one after another, and before each read one job is put on hold or released. So nothing is
answered from notes alone. Printed: the first read, the p95 of the others, and the CPU of the master
and of the web server for each. The change is made a moment before, and left out.

Goals of issue 23: p95 of lists at most 150 ms, and the first page at most 1 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.live.restart import a_job
from benchmarks.support.conditions import percentile
from benchmarks.support.living import BIN, Living, cpu_s
from benchmarks.support.report import Report
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.store.batch import Batch

GOAL_MS, FIRST_MS = 150.0, 1_000.0
PATIENCE_S = 60.0
SETTLED_S = 0.1  # for the plan after a change
ASKED = {
    "/v1/jobs, 200 by number": "/v1/jobs?user=*&limit=200&state=queued,held",
    "/v1/jobs, by GPUs, falling": "/v1/jobs?user=*&limit=200&state=queued,held&order=-gpus",
    "/v1/jobs, of one user": "/v1/jobs?user=user7&limit=200&order=-submit",
    "/v1/jobs, words": "/v1/jobs?user=*&limit=200&q=train-29&state=queued,held",
    "/v1/jobs, the last day by end": "/v1/jobs?user=*&limit=200&order=-end",
    "/v1/jobs, words in the last day": "/v1/jobs?user=*&limit=200&q=train-29+user1",
    "the queue page": "/jobs",
    "the queue page by user, falling": "/jobs?order=-user",
    "the search": "/search?q=train-29",
}


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--ended", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=20)
    report = Report.begin("live.web_lists", parser)
    chosen = report.options
    with tempfile.TemporaryDirectory() as place, Living(Path(place)) as living:
        living.start_anew(_rows(chosen.jobs, chosen.ended))
        web = subprocess.Popen(
            [BIN / "dlq", "web"], env=living.environment, stdin=subprocess.DEVNULL,
            stderr=(living.root / "web.log").open("w"),
        )  # fmt: skip
        try:
            _measure(report, living, web.pid)
        finally:
            web.terminate()
            web.wait(timeout=30)
    report.end()


def _rows(jobs: int, ended: int) -> Batch:
    """The ended jobs ended over the last 20 hours."""
    now_s = time.time()
    batch = Batch()
    for number in range(1, ended + jobs + 1):
        job = a_job(number)
        batch.jobs.append(_ended(job, now_s, ended) if number <= ended else job)
    return batch


def _ended(job: Job, now_s: float, ended: int) -> Job:
    end_s = now_s - 72_000.0 * (ended - job.job_id) / ended
    return job._replace(state=JobState.COMPLETED, end_time_s=end_s, queued_since_s=None)


def _measure(report: Report, living: Living, web: int) -> None:
    address, token = _token(living.home / "web.json")
    identity = load_identity(living.home)
    assert identity is not None
    with Connection(identity) as connection:
        change = _Change(Jobs(connection), str(report.options.ended + 1))
        for name, path in ASKED.items():
            _tell(report, living, web, name, f"{address}{path}", token, change)


def _tell(
    report: Report, living: Living, web: int, name: str, url: str, token: str,
    change: _Change,
) -> None:  # fmt: skip
    reads = report.options.reads
    first_s, size = _read(url, token)
    report.figure(f"{name}, first", 1e3 * first_s, "ms", at_most=FIRST_MS)
    master_s, web_s, took_s = 0.0, cpu_s(web), list[float]()
    for _ in range(reads):
        change.make()
        time.sleep(SETTLED_S)
        before_s = cpu_s(living.master.pid)
        took_s.append(_read(url, token)[0])
        master_s += cpu_s(living.master.pid) - before_s
    master_ms, web_ms = 1e3 * master_s / reads, 1e3 * (cpu_s(web) - web_s) / reads
    report.figure(
        f"{name}, p95", 1e3 * percentile(took_s, 0.95), "ms", at_most=GOAL_MS,
        note=f"p50 {1e3 * percentile(took_s, 0.5):.0f} ms; CPU: {master_ms:.1f} ms of the master,"
        f" {web_ms:.0f} ms of the web server; {size:,} bytes",
    )  # fmt: skip


class _Change:
    """A job is put on hold, and released, in turn."""

    def __init__(self, jobs: Jobs, job_id: str) -> None:
        self._jobs, self._job_id, self._held = jobs, job_id, False

    def make(self) -> None:
        turn = self._jobs.release if self._held else self._jobs.hold
        turn(self._job_id)
        self._held = not self._held


def _read(url: str, token: str) -> tuple[float, int]:
    """Seconds, and bytes."""
    asked = Request(url, headers={"Authorization": f"Bearer {token}"})
    began_s = time.perf_counter()
    with urlopen(asked, timeout=PATIENCE_S) as answer:
        size = len(answer.read())
    return time.perf_counter() - began_s, size


def _token(path: Path) -> tuple[str, str]:
    """The address and the token of the server, once it serves."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError("dlq web does not serve; see web.log")
        time.sleep(0.05)
    told = json.loads(path.read_text())
    return told["address"], told["token"]


if __name__ == "__main__":
    main()
