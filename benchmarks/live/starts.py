"""From the submit to the running job on an idle cluster, beyond the floor of starting a process.

    python -m benchmarks.live.starts [--count N] [--json]

Measured by the client over one connection: from sending SubmitJob to the event that says the
attempt runs. The launch floor is one posix_spawn of /bin/true, waited for. Goal: p50 at most 50 ms
beyond the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from grpc import aio, ssl_channel_credentials

from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq.v1 import job_pb2, job_service_pb2, resource_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity


def launch_floor_s(count: int = 50) -> float:
    """Median of spawning /bin/true and waiting for it."""
    took = []
    for _ in range(count):
        start_s = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        took.append(time.perf_counter() - start_s)
    return percentile(took, 0.5)


async def starts(identity: Identity, count: int) -> list[float]:
    """One job after another, each on the idle cluster."""
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    took = []
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub = JobServiceStub(channel)
        events = stub.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=-1), timeout=600)
        await asyncio.sleep(0.5)  # the watch stands before the first submit
        for number in range(count):
            spec = job_pb2.JobSpec(
                command=["/bin/true"],
                resources=resource_pb2.ResourceRequest(gpu_count=1),
                working_directory="/tmp",
            )
            start_s = time.perf_counter()
            answer = await stub.SubmitJob(
                job_service_pb2.SubmitJobRequest(request_id=f"{os.getpid()}-{number}", spec=spec),
                timeout=30,
            )
            async for message in events:
                same = message.event.job_id == answer.job.job_id
                if same and message.event.kind == "attempt_running":
                    took.append(time.perf_counter() - start_s)
                if same and message.event.kind == "job_completed":
                    break
        events.cancel()
    return took


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    report = Report.begin("live.starts", parser)
    with tempfile.TemporaryDirectory() as directory:
        report.disk(Path(directory))
        floor_s = launch_floor_s()
        report.figure("launch floor: posix_spawn of /bin/true, p50", 1e3 * floor_s, "ms")
        with Living(Path(directory)) as living:
            living.start_agent("n1", "fake:8xH100-80GB")
            identity = load_identity(living.home)
            assert identity is not None
            took = asyncio.run(starts(identity, report.options.count))
    beyond_ms = 1e3 * (percentile(took, 0.5) - floor_s)
    report.figure(
        "submit to running, idle, beyond the floor, p50", beyond_ms, "ms",
        at_most=50, note=f"{len(took)} jobs",
    )  # fmt: skip
    report.figure("submit to running, idle, p99", 1e3 * percentile(took, 0.99), "ms")
    report.end()


if __name__ == "__main__":
    main()
