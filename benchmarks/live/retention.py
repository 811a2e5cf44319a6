"""The cost of cutting the journal to the turns that go on meanwhile.

    python -m benchmarks.live.retention [--events N] [--json]

A journal of half a million events, of jobs that have ended, is cut to a tenth. Meanwhile batches
like those of a busy master (a job and three events) are committed one after another, 100 a second.
Each commit is timed, first without and then with the cut beside it. Goal: the 99th percentile of a
commit rises by at most 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.live.restart import BATCH, a_job, an_end
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Seconds
from dlq_master.control.config import RetentionConfig
from dlq_master.control.loop.compaction import compact
from dlq_master.model.event import JournalEvent
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database

EVENTS_OF_A_JOB = 6
EVERY_S = 0.01
QUIET_S = 5.0
KEPT_SHARE = 10


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    report = Report.begin("live.retention", parser)
    with tempfile.TemporaryDirectory() as place:
        report.disk(Path(place))
        asyncio.run(_measure(report, Path(place) / "dlq.db", report.options.events))
    report.end()


async def _measure(report: Report, path: Path, count: int) -> None:
    create_database(path)
    writer, reader = Writer(path), Reader(path)
    await _fill(writer, count)
    turns = _Turns(writer, count)
    quiet = await turns.until(asyncio.create_task(asyncio.sleep(QUIET_S)))
    retention = RetentionConfig(journal_kept=Seconds(1e9), journal_most=count // KEPT_SHARE)
    clock = SteadyClock()
    start_s = time.perf_counter()
    cutting = asyncio.create_task(compact(reader, writer, retention, clock, 0, lambda _: None))
    busy = await turns.until(cutting)
    took_s = time.perf_counter() - start_s
    before, beside = (percentile(taken, 0.99) * 1000 for taken in (quiet, busy))
    report.figure("events cut", cutting.result() / took_s, "/s", note=f"{cutting.result()} in all")
    report.figure("a commit, 50th percentile, alone", percentile(quiet, 0.5) * 1000, "ms")
    report.figure("a commit, 50th percentile, beside the cut", percentile(busy, 0.5) * 1000, "ms")
    report.figure("a commit, 99th percentile, alone", before, "ms")
    report.figure("a commit, 99th percentile, beside the cut", beside, "ms", at_most=before + 10)
    report.figure("the longest commit, alone", max(quiet) * 1000, "ms")
    report.figure("the longest commit, beside the cut", max(busy) * 1000, "ms")
    writer.close()
    reader.close()


class _Turns:
    """Commits the batches of a busy master, and times them."""

    def __init__(self, writer: Writer, last: int) -> None:
        self._writer = writer
        self._last = last

    async def until(self, done: asyncio.Task[object]) -> list[float]:
        """Seconds that each commit took until `done` was."""
        taken = []
        while not done.done():
            batch = self._batch()
            start_s = time.perf_counter()
            await self._writer.commit(batch)
            taken.append(time.perf_counter() - start_s)
            await asyncio.sleep(max(0.0, EVERY_S - taken[-1]))
        return taken

    def _batch(self) -> Batch:
        job = a_job(10_000_000 + self._last)
        batch = Batch(jobs=[job])
        for kind in ("job_submitted", "job_admitted", "attempt_assigned"):
            self._last += 1
            batch.events.append(
                JournalEvent(kind=kind, time_s=2e9, seq=self._last, job_id=job.job_id)
            )
        return batch


async def _fill(writer: Writer, count: int) -> None:
    jobs = count // EVENTS_OF_A_JOB
    for first in range(1, jobs + 1, BATCH):
        batch = Batch()
        for number in range(first, min(first + BATCH, jobs + 1)):
            job, attempt = an_end(a_job(number), 1.8e9)
            batch.jobs.append(job)
            batch.attempts.append(attempt)
            batch.events += [
                JournalEvent(
                    kind="job_noted",
                    time_s=1.7e9 + number,
                    # Neighbours in the journal are of different jobs, as in life.
                    seq=number + jobs * of_job,
                    job_id=job.job_id,
                    actor="scheduler",
                    data={"gpus": 8, "nodes": "gpu01:0+1+2+3+4+5+6+7"},
                )
                for of_job in range(EVENTS_OF_A_JOB)
            ]
        await writer.commit(batch)


if __name__ == "__main__":
    main()
