"""Durable submits a second over mutual TLS, and what one costs.

    python -m benchmarks.submits [--count N]

A submit counts when its answer has come: the job is on disk then. Client and master share the
machine. Goal: 900 a second with 64 in flight on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.conditions import percentile, print_conditions
from benchmarks.living import Living, cpu_s
from grpc import aio, ssl_channel_credentials

from dlq.v1 import job_pb2, job_service_pb2, resource_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.connection import SERVER_NAME
from dlq_client.identity import Identity, load_identity

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

# Lines of master.toml that follow its [jobs] table.
SETTINGS = """queued_per_user = 1000000
[log]
level = "warning"
"""


async def submit_many(identity: Identity, count: int, in_flight: int) -> tuple[float, list[float]]:
    """Seconds for all, and for each."""
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
                        request_id=f"{os.getpid()}-{in_flight}-{number}-{each}", spec=spec
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
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as directory:
        print_conditions(Path(directory))
        with Living(Path(directory), SETTINGS) as living:
            master = living.master
            living.run("dlq", "login")
            identity = load_identity(living.home)
            assert identity is not None
            for in_flight, share in ((1, 8), (64, 1)):
                before_s = cpu_s(master.pid)
                total_s, took = asyncio.run(submit_many(identity, count // share, in_flight))
                used_s = cpu_s(master.pid) - before_s
                print(
                    f"submits, {in_flight:2d} in flight: {len(took) / total_s:6.0f}/s  "
                    f"p50 {1e3 * percentile(took, 0.5):5.1f} ms  p99 {1e3 * percentile(took, 0.99):5.1f} ms  "
                    f"master CPU {1e6 * used_s / len(took):4.0f} us each"
                )


if __name__ == "__main__":
    main()
