"""Durable submits a second over mutual TLS, and the cost of one.

    python -m benchmarks.live.submits [--count N] [--json]

A submit counts when its answer has come: the job is on disk then. Client and master share the
machine. The sync rate of the disk is printed beside them: with 1 in flight it bounds the rate.
Goal: 900 a second with 64 in flight on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import aio, ssl_channel_credentials

from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_pb2, job_service_pb2, resource_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

GOAL = 900
# Lines of master.toml that follow its [jobs] table.
SETTINGS = """queued_per_user = 1000000
submit_burst = 1000000
[log]
level = "warning"
"""


async def submit_many(
    identity: Identity, count: int, in_flight: int, stretch: int = 0
) -> tuple[float, list[float]]:
    """Seconds for all, and for each. Stretches of one benchmark have different numbers."""
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    took: list[float] = []
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub: JobServiceAsyncStub = JobServiceStub(channel)  # its asynchronous face
        spec = job_pb2.JobSpec(
            command=["/bin/true"],
            resources=resource_pb2.ResourceRequest(gpu_count=1),
            environment={"DATA": "/shared/data", "RUN": "benchmark"},
            working_directory="/tmp",
        )
        left = iter(range(count))

        async def client(number: int) -> None:
            for each in left:
                start_s = time.perf_counter()
                await stub.SubmitJob(
                    job_service_pb2.SubmitJobRequest(
                        request_id=f"{os.getpid()}-{stretch}-{in_flight}-{number}-{each}", spec=spec
                    ),
                    timeout=30,
                )
                took.append(time.perf_counter() - start_s)

        await client_warm_up(stub)
        start_s = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(in_flight)))
        return time.perf_counter() - start_s, took


async def client_warm_up(stub: JobServiceAsyncStub) -> None:
    """The first call pays for the connection."""
    await stub.ListJobs(job_service_pb2.ListJobsRequest(page_size=1), timeout=30)


def main() -> None:
    """Measure with 1 and with 64 in flight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4000)
    report = Report.begin("live.submits", parser)
    with tempfile.TemporaryDirectory() as directory:
        disk = report.disk(Path(directory))
        with Living(Path(directory), SETTINGS) as living:
            living.run("dlq", "login")
            identity = load_identity(living.home)
            assert identity is not None
            for in_flight, share in ((1, 8), (64, 1)):
                _measure(report, living, identity, report.options.count // share, in_flight, disk)
    report.end()


def _measure(
    report: Report, living: Living, identity: Identity, count: int, in_flight: int, disk: float
) -> None:
    """The rate, the spread, and the cost of each submit to either end."""
    pid = living.master.pid
    master_s, client_s = cpu_s(pid), time.process_time()
    total_s, took = asyncio.run(submit_many(identity, count, in_flight))
    master_s, client_s = cpu_s(pid) - master_s, time.process_time() - client_s
    name = f"submits, {in_flight} in flight"
    rate = len(took) / total_s
    report.figure(
        name, rate, "/s",
        at_least=GOAL if in_flight == 64 else None,
        note=f"{rate / disk:.2f} for each sync that the disk could do",
    )  # fmt: skip
    report.figure(f"{name}, p50", 1e3 * percentile(took, 0.5), "ms")
    report.figure(f"{name}, p99", 1e3 * percentile(took, 0.99), "ms")
    report.figure(f"{name}, CPU of the master for each", 1e6 * master_s / len(took), "us")
    report.figure(f"{name}, CPU of the client for each", 1e6 * client_s / len(took), "us")


if __name__ == "__main__":
    main()
