"""How long a master with 100,000 jobs takes from its start to serving, and what each job costs it.

    python -m benchmarks.restart [--jobs N]

The jobs lie in the database as the master itself would have written them: queued, each with its
spec, its answered request and two lines in the journal. Serving means that a client's call over
mutual TLS is answered. Goal: 5 s for 100,000 jobs, 2 KiB of memory for each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.conditions import print_conditions
from benchmarks.living import Living, cpu_s

from dlq.v1 import job_pb2
from dlq_client.connection import Connection
from dlq_client.identity import load_identity
from dlq_client.queues import Queues
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job, JobState
from dlq_master.model.order import WAITING_BASE
from dlq_master.model.resources import Request
from dlq_master.store.batch import Batch, StoredRequest
from dlq_master.store.codec import decode, encode
from dlq_master.store.open import open_database
from dlq_master.store.reader import Reader
from dlq_master.store.rows import write_batch
from dlq_master.store.write import write

BATCH = 2_000


def main() -> None:
    """Print every figure with its conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    count = parser.parse_args().jobs
    print_conditions()
    _codec()
    with tempfile.TemporaryDirectory() as place, Living(Path(place)) as cluster:
        cluster.run("dlq", "login")
        empty_mib = _resident_mib(cluster.master.pid)
        cluster.master.terminate()
        cluster.master.wait()
        path = cluster.state_dir / "dlq.db"
        print(f"filling: {_fill(path, count):.1f} s for {count} jobs, {_mib(path):.0f} MiB on disk")
        start_s = time.perf_counter()
        reader = Reader(path)
        loaded = len(reader.load().jobs)
        print(f"reading them all: {time.perf_counter() - start_s:.2f} s for {loaded} jobs")
        reader.close()
        start_s = time.perf_counter()
        master = cluster.start_master()
        _answered(cluster.home)
        took_s = time.perf_counter() - start_s
        print(f"restart to the first answer: {took_s:.2f} s, CPU {cpu_s(master.pid):.2f} s")
        each_kib = (_resident_mib(master.pid) - empty_mib) * 1024 / count
        print(f"memory for each queued job: {each_kib:.2f} KiB (resident, beyond an empty master)")


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


def _fill(path: Path, count: int) -> float:
    start_s = time.perf_counter()
    db = open_database(path)
    events = Reader(path).load().last_event
    for first in range(1, count + 1, BATCH):
        batch = Batch()
        for number in range(first, min(first + BATCH, count + 1)):
            job = a_job(number)
            batch.jobs.append(job)
            batch.specs.append((job.job_id, _spec(number)))
            batch.requests.append(
                StoredRequest(job.user, f"request-{number}", "d" * 32, str(number), 1.7e9)
            )
            for kind in ("job_submitted", "job_admitted"):
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


def _codec() -> None:
    job, times = a_job(7), 20_000
    start_s = time.perf_counter()
    for _ in range(times):
        encode(job)
    encoded_s = time.perf_counter()
    body = encode(job)
    for _ in range(times):
        decode(body, Job)
    print(
        f"one job: {(encoded_s - start_s) / times * 1e6:.1f} us to encode, "
        f"{(time.perf_counter() - encoded_s) / times * 1e6:.1f} us to decode, {len(body)} B"
    )


def _answered(home: Path) -> None:
    identity = load_identity(home)
    assert identity is not None
    with Connection(identity, patience_s=60.0) as line:
        Queues(line).cluster()


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _mib(path: Path) -> float:
    return path.stat().st_size / 1024**2


if __name__ == "__main__":
    main()
