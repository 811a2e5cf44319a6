"""Durable submits a second over mutual TLS, and the cost of one.

    python -m benchmarks.live.submits [--count N] [--full] [--floor] [--json]

A submit counts when its answer has come: the job is on disk then. Client and master share the
machine. The sync rate of the disk is printed beside them: with 1 in flight it bounds the rate.
Answers are brief, as `sbatch` asks for them; with `--full` they hold the whole job and its reasons.
Then come many jobs in few calls: specs that differ by `SubmitJobs`, and arrays. `--floor` first
measures a server that does nothing but answer, and one that keeps the specs and does nothing else
(`benchmarks.live.grpc_floor`). No master that serves by grpc.aio can spend less on a call.
Goals (issue 21): 1,800 a second with 64 in flight on two cores, at 0.6 ms of CPU of the master for
each. A job of a batch or an array costs 50 us.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import aio, ssl_channel_credentials

from benchmarks.live.grpc_floor import floor_server
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_pb2, job_service_pb2, resource_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

GOAL = 1_800
GOAL_US, GOAL_OF_MANY_US = 600.0, 50.0  # CPU of the master for each
IN_FLIGHT = {1: 8, 8: 2, 64: 1}  # calls on their way, and the divisor of the count
MANY = 500  # jobs of a call
# Lines of master.toml that follow its [jobs] table.
SETTINGS = """queued_per_user = 1000000
submit_burst = 1000000
[log]
level = "warning"
"""


@asynccontextmanager
async def calling(identity: Identity) -> AsyncIterator[JobServiceAsyncStub]:
    """A line to the master, after its first call: that one pays for the connection."""
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub: JobServiceAsyncStub = JobServiceStub(channel)  # its asynchronous face
        await stub.ListJobs(job_service_pb2.ListJobsRequest(page_size=1), timeout=30)
        yield stub


def a_spec(*arguments: str) -> job_pb2.JobSpec:
    """A job of one GPU."""
    return job_pb2.JobSpec(
        command=["/bin/true", *arguments],
        resources=resource_pb2.ResourceRequest(gpu_count=1),
        environment={"DATA": "/shared/data", "RUN": "benchmark"},
        working_directory="/tmp",
    )


async def submit_many(
    identity: Identity,
    count: int,
    in_flight: int,
    stretch: int = 0,
    *,
    brief: bool = False,
    kept: bool = False,
) -> tuple[float, list[float]]:
    """Seconds for all, and for each. Stretches of one benchmark have different numbers. `kept`: by
    the call that the floor keeps.
    """
    took: list[float] = []
    async with calling(identity) as stub:
        left = iter(range(count))

        async def client(number: int) -> None:
            for each in left:
                start_s = time.perf_counter()
                key = f"{os.getpid()}-{stretch}-{in_flight}-{number}-{each}"
                spec = a_spec(str(each))
                if kept:
                    many = job_service_pb2.SubmitJobsRequest(request_id=key, specs=[spec])
                    await stub.SubmitJobs(many, timeout=30)
                else:
                    one = job_service_pb2.SubmitJobRequest(request_id=key, spec=spec, brief=brief)
                    await stub.SubmitJob(one, timeout=30)
                took.append(time.perf_counter() - start_s)

        start_s = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(in_flight)))
        return time.perf_counter() - start_s, took


async def submit_batches(identity: Identity, count: int) -> tuple[float, list[float]]:
    """The same of so many jobs whose arguments differ, `MANY` in a call."""
    async with calling(identity) as stub:
        start_s = time.perf_counter()
        for first in range(0, count, MANY):
            specs = [a_spec(str(number)) for number in range(first, first + MANY)]
            request_id = f"{os.getpid()}-many-{first}"
            request = job_service_pb2.SubmitJobsRequest(request_id=request_id, specs=specs)
            answer = await stub.SubmitJobs(request, timeout=60)
            assert all(job.job_id for job in answer.jobs)
        return time.perf_counter() - start_s, [0.0] * count


async def submit_array(identity: Identity, count: int) -> tuple[float, list[float]]:
    """The same of an array of so many tasks."""
    async with calling(identity) as stub:
        spec = a_spec()
        spec.array.ranges.add(first=0, last=count - 1)
        start_s = time.perf_counter()
        request_id = f"{os.getpid()}-array"
        request = job_service_pb2.SubmitJobRequest(request_id=request_id, spec=spec, brief=True)
        await stub.SubmitJob(request, timeout=60)
        return time.perf_counter() - start_s, [0.0] * count


def main() -> None:
    """Measure with 1, 8 and 64 in flight, many in a call, and an array."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--full", action="store_true", help="answers with the whole job")
    parser.add_argument("--floor", action="store_true", help="first the servers of the floor")
    report = Report.begin("live.submits", parser)
    count, brief = report.options.count, not report.options.full
    with tempfile.TemporaryDirectory() as directory:
        disk = report.disk(Path(directory))
        if report.options.floor:
            with floor_server(Path(directory)) as (pid, identity):
                for in_flight, share in IN_FLIGHT.items():
                    for name, kept in (("floor", False), ("floor that keeps", True)):
                        calls = submit_many(identity, count // share, in_flight, kept=kept)
                        _measure(report, pid, f"{name}, {in_flight} in flight", calls)
                batches = submit_batches(identity, 2 * count)
                _measure(report, pid, "floor that keeps, SubmitJobs", batches)
        with Living(Path(directory), SETTINGS) as living:
            living.run("dlq", "login")
            user = load_identity(living.home)
            assert user is not None
            pid = living.master.pid
            for in_flight, share in IN_FLIGHT.items():
                calls = submit_many(user, count // share, in_flight, brief=brief)
                name = f"submits, {in_flight} in flight"
                rate = GOAL if in_flight == 64 else None
                _measure(report, pid, name, calls, GOAL_US, rate, disk)
            for name, many in (("SubmitJobs", submit_batches), ("array", submit_array)):
                _measure(report, pid, name, many(user, 2 * count), GOAL_OF_MANY_US)
    report.end()


def _measure(
    report: Report,
    pid: int,
    name: str,
    submits: Coroutine[Any, Any, tuple[float, list[float]]],
    at_most_us: float | None = None,
    at_least: float | None = None,
    disk: float = 0.0,
) -> None:
    """The rate, the spread, and the cost of each submit to either end."""
    server_s, client_s = cpu_s(pid), time.process_time()
    total_s, took = asyncio.run(submits)
    server_s, client_s = cpu_s(pid) - server_s, time.process_time() - client_s
    rate = len(took) / total_s
    note = f"{rate / disk:.2f} for each sync that the disk could do" if disk else ""
    report.figure(name, rate, "/s", at_least=at_least, note=note)
    if any(took):
        report.figure(f"{name}, p50", 1e3 * percentile(took, 0.5), "ms")
        report.figure(f"{name}, p99", 1e3 * percentile(took, 0.99), "ms")
    server_us = 1e6 * server_s / len(took)
    report.figure(f"{name}, CPU of the server for each", server_us, "us", at_most=at_most_us)
    report.figure(f"{name}, CPU of the client for each", 1e6 * client_s / len(took), "us")


if __name__ == "__main__":
    main()
