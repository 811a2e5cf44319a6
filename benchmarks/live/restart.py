"""The time of a master with 100,000 jobs from its start to serving, and the memory of each job.

    python -m benchmarks.live.restart [--jobs N] [--ended N] [--json]

The jobs lie in the database as the master itself would have written them. Queued ones have their
spec, their answered request and two lines in the journal. As many again have ended, with an attempt
each and six lines. Of these the newest 10,000 are loaded. Serving means that a client's call over
mutual TLS is answered. Goals on a quiet machine: 0.8 s for 10,000 of both, and 2.5 s for 100,000.
An idle master takes 60 MB of memory (PSS), and each queued job 1.5 KiB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_pb2
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_client.queues import Queues
from dlq_common.daemon.resident import SETTLED_S
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankStatus
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs.job import EndReason, Job, JobState
from dlq_master.model.lease import Lease, LeaseKind
from dlq_master.model.order.keys import WAITING_BASE
from dlq_master.model.resources import Allocation, Request, Slot
from dlq_master.store.batch import Batch, StoredRequest
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.halves import Reader
from dlq_master.store.sqlite.open import open_database, write
from dlq_master.store.tables.codec import decode, encode

BATCH = 2_000
LIVING_EVENTS = ("job_submitted", "job_admitted")
ENDED_EVENTS = (
    *LIVING_EVENTS,
    "attempt_assigned",
    "attempt_running",
    "attempt_succeeded",
    "job_completed",
)
GOAL_JOBS = 100_000
GOALS_S = {10_000: 0.8, GOAL_JOBS: 2.5}  # by the number of jobs of each kind


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=GOAL_JOBS, help="queued ones")
    parser.add_argument("--ended", type=int, default=GOAL_JOBS, help="ended ones")
    report = Report.begin("live.restart", parser)
    _codec(report)
    with tempfile.TemporaryDirectory() as place:
        report.disk(Path(place))
        with Living(Path(place)) as cluster:
            _restart(report, cluster, report.options.jobs, report.options.ended)
    report.end()


def _restart(report: Report, cluster: Living, count: int, ended: int) -> None:
    cluster.run("dlq", "login")
    time.sleep(SETTLED_S + 5.0)
    report.figure("an idle master, resident", resident_mib(cluster.master.pid), "MiB")
    report.figure("an idle master, PSS", _pss_mib(cluster.master.pid), "MiB", at_most=60)
    path = cluster.state_dir / "dlq.db"
    goal_s = GOALS_S.get(count) if count == ended else None
    taken_mib = []
    for kind, first, last in (("ended", 1, ended), ("queued", ended + 1, ended + count)):
        cluster.master.terminate()
        cluster.master.wait()
        took_s = fill(path, ended, first, last)
        report.figure(f"filling it with {last - first + 1} {kind} jobs", took_s, "s")
        start_s = time.perf_counter()
        master = cluster.master = cluster.start_master()
        answered(cluster.home)
        took_s = time.perf_counter() - start_s
        taken_mib.append(resident_mib(master.pid))
        report.figure(
            f"restart with {last} jobs to the first answer", took_s, "s",
            at_most=goal_s if kind == "queued" else None, note=f"CPU {cpu_s(master.pid):.2f} s",
        )  # fmt: skip
    report.figure("on disk", _mib(path), "MiB")
    each_kib = (taken_mib[1] - taken_mib[0]) * 1024 / count
    report.figure("memory for each queued job, resident", each_kib, "KiB", at_most=1.5)


def a_job(number: int) -> Job:
    """A queued job like those of a busy day."""
    return Job(
        job_id=JobId(number),
        user=f"user{number % 50}",
        name=f"train-{number % 300}",
        request=Request(gpus=(1, 1, 2, 4, 8)[number % 5]),
        submit_time_s=1.7e9 + number,
        state=JobState.QUEUED,
        version=2,
        queued_since_s=1.7e9 + number,
        sequence=WAITING_BASE + number,
    )


def an_end(job: Job, end_s: float) -> tuple[Job, Attempt]:
    """The same job once it has run on one node and ended."""
    key, slot = AttemptKey(job.job_id, 1), Slot(NodeId("gpu01"), (1 << job.request.gpus) - 1)
    attempt = Attempt(
        key=key,
        epoch=1,
        lease=Lease(LeaseKind.BE, Allocation((slot,)), Fence(1, 1), end_s, 3600.0),
        state=AttemptState.SUCCEEDED,
        assigned_time_s=end_s - 60.0,
        started_time_s=end_s - 59.0,
        ended_time_s=end_s,
        ranks=(RankStatus(NodeId("gpu01"), exit_code=0),),
    )
    ended = job._replace(
        state=JobState.COMPLETED,
        attempts=1,
        end_time_s=end_s,
        end_reason=EndReason.COMPLETED,
        exit_code=0,
        total_gpu_s=59.0 * job.request.gpus,
        total_executed_s=59.0,
    )
    return ended, attempt


def fill(path: Path, ended: int, first: int, last: int) -> float:
    """Jobs with these numbers. Those up to `ended` have ended, ten of them in each second of the
    last.
    """
    start_s = time.perf_counter()
    db = open_database(path)
    reader = Reader(path)
    events = reader.load().last_event
    reader.close()
    for begin in range(first, last + 1, BATCH):
        batch = Batch()
        for number in range(begin, min(begin + BATCH, last + 1)):
            job = a_job(number)
            if number <= ended:
                job, attempt = an_end(job, 1.7e9 + 1e6 - (ended - number) / 10)
                batch.attempts.append(attempt)
            batch.jobs.append(job)
            batch.specs.append((job.job_id, _spec(number)))
            batch.requests.append(
                StoredRequest(job.user, f"request-{number}", "d" * 32, str(number), 1.7e9)
            )
            for kind in ENDED_EVENTS if number <= ended else LIVING_EVENTS:
                events += 1
                batch.events.append(
                    JournalEvent(kind=kind, time_s=job.submit_time_s, seq=events, job_id=job.job_id)
                )
        with write(db):
            write_batch(db, batch)
    db.close()
    return time.perf_counter() - start_s


def _spec(number: int) -> bytes:
    return job_pb2.JobSpec(
        name=f"train-{number % 300}",
        command=["python", "train.py", "--seed", str(number)],
        environment={"DATA": "/shared/data", "RUN": str(number)},
        working_directory="/shared/runs",
    ).SerializeToString()


def _codec(report: Report) -> None:
    job, times = a_job(7), 20_000
    start_s = time.perf_counter()
    for _ in range(times):
        encode(job)
    encoded_s = time.perf_counter()
    body = encode(job)
    for _ in range(times):
        decode(body, Job)
    decoded_s = time.perf_counter()
    report.figure("one job, to encode", (encoded_s - start_s) / times * 1e6, "us")
    report.figure(
        "one job, to decode", (decoded_s - encoded_s) / times * 1e6, "us", note=f"{len(body)} B"
    )


def answered(home: Path) -> None:
    """Return when a client's call has been answered."""
    identity = load_identity(home)
    assert identity is not None
    with Connection(identity, patience_s=60.0) as line:
        Queues(line).cluster()


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _pss_mib(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.split("Pss:")[1].split()[0]) / 1024


def _mib(path: Path) -> float:
    return path.stat().st_size / 1024**2


if __name__ == "__main__":
    main()
