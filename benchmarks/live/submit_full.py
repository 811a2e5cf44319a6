"""Submits to a full cluster while its queue grows: their rate, and the cost of each to the master.

    python -m benchmarks.live.submit_full [--agents N] [--lengths 0,400,1600,4000] [--count N]
        [--policy dlq] [--json]

A real master; agents of 8 virtual GPUs (`virtual_nodes`) that live in the process of the benchmark.
First as many jobs of 8 GPUs as there are nodes are submitted to the empty cluster: each of them
starts. From then on nothing ends, and every job that comes (1 to 8 GPUs) waits. At each length of
the queue `--count` submits are timed, with `--in-flight` of them on their way. The queue is then
filled up to the next length. Printed for each: submits a second, the spread of their times, and CPU
seconds of the master's process for each submit, with its heartbeats. Goal of issue 18: at the
longest queue a submit costs the master no more than half as much again as at the shortest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

from grpc import aio, ssl_channel_credentials

from benchmarks.live.busy_master import GPUS, WIDTHS, with_nodes
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.virtual_nodes import RUN, Fleet
from dlq.v1 import job_pb2, job_service_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity
from dlq_master.serving import read_authority

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

MOST_GROWTH = 1.5
LONGER_THAN_THE_BENCHMARK_S = 86_400


class Submitter:
    """The submitter of jobs of all widths, as one user."""

    def __init__(self, stub: JobServiceAsyncStub, in_flight: int) -> None:
        self._stub = stub
        self._in_flight = in_flight
        self._draw = random.Random(1)
        self._count = 0

    async def submit(self, count: int, gpus: int | None = None) -> tuple[float, list[float]]:
        """Submit `count` jobs of `gpus` GPUs each, None: of 1 to 8. Seconds for all, and for
        each.
        """
        took_s: list[float] = []
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                begin_s = time.perf_counter()
                await self._submit_one(gpus)
                took_s.append(time.perf_counter() - begin_s)

        begin_s = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(self._in_flight)))
        return time.perf_counter() - begin_s, took_s

    async def _submit_one(self, gpus: int | None) -> None:
        self._count += 1
        environment = {RUN: str(LONGER_THAN_THE_BENCHMARK_S)}
        spec = job_pb2.JobSpec(
            command=["/bin/true"], working_directory="/tmp", environment=environment
        )
        widths = self._draw.choices([*WIDTHS], [*WIDTHS.values()])
        spec.resources.gpu_count = widths[0] if gpus is None else gpus
        request_id = f"{os.getpid()}-{self._count}"
        await self._stub.SubmitJob(
            job_service_pb2.SubmitJobRequest(request_id=request_id, spec=spec), timeout=120
        )


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--policy", default="dlq")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--count", type=int, default=400, help="submits timed at each length")
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument(
        "--lengths",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[0, 400, 1600, 4000],
    )
    report = Report.begin("live.submit_full", parser)
    with_nodes(report, _measure)
    report.end()


async def _measure(report: Report, living: Living, identity: Identity) -> None:
    chosen = report.options
    fleet = Fleet(identity.address, read_authority(living.state_dir, "bench"), chosen.agents, GPUS)
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        submitter = Submitter(JobServiceStub(channel), chosen.in_flight)
        await fleet.join()
        await _timed(report, living, submitter, chosen.agents, "empty cluster, each starts", GPUS)
        while fleet.tally.counts["starts"] < chosen.agents:
            fleet.check()
            await asyncio.sleep(0.05)
        queued, costs = 0, []
        for length in chosen.lengths:
            await submitter.submit(max(0, length - queued))
            name = f"full cluster, {max(queued, length)} wait"
            costs.append(await _timed(report, living, submitter, chosen.count, name))
            queued = max(queued, length) + chosen.count
        report.figure(
            "a submit at the longest queue against the shortest, CPU of the master",
            costs[-1] / costs[0], "times", at_most=MOST_GROWTH,
        )  # fmt: skip
        fleet.check()
        await fleet.close()


async def _timed(
    report: Report,
    living: Living,
    submitter: Submitter,
    count: int,
    name: str,
    gpus: int | None = None,
) -> float:
    """Print the time of these submits; return CPU seconds of the master for each."""
    used_s = cpu_s(living.master.pid)
    total_s, took_s = await submitter.submit(count, gpus)
    each_s = (cpu_s(living.master.pid) - used_s) / count
    report.figure(f"{name}: submits", count / total_s, "/s")
    for share in (0.5, 0.99):
        report.figure(f"{name}: submit, p{100 * share:g}", 1e3 * percentile(took_s, share), "ms")
    report.figure(f"{name}: CPU of the master for each", 1e3 * each_s, "ms")
    return each_s


if __name__ == "__main__":
    main()
