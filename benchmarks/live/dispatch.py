"""A queue of jobs that do nothing: how fast they pass, and the processor time that each costs.

    python -m benchmarks.live.dispatch [--jobs N] [--nodes N] [--json]

A real master and agents with eight virtual GPUs each run on this host. The queue is submitted while
all nodes are drained, so only dispatch and completion are measured: from `undrain` to the last
job's end. The processor time of the agents is apart from that of their shims and jobs, which the
kernel counts for the parent. The wait is from the event that assigned a job to the event that says
that it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import aio, ssl_channel_credentials

from benchmarks.node.agent_load import children
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq.v1 import job_pb2, job_service_pb2, resource_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import load_identity

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

_AT_ONCE = 64
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Passage:
    """The instants of a queue, by its events."""

    assigned_s: dict[str, float] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    took_s: float = 0.0


def spent_s(pid: int) -> tuple[float, float]:
    """Processor time of a process itself, and of all that it has started."""
    own, ended = _times_s(pid)
    return own, ended + sum(sum(_times_s(child)) for child in children(pid))


def _times_s(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, ended = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
    return own / _TICKS, ended / _TICKS


async def passage(living: Living, count: int, nodes: list[str]) -> Passage:
    """Submit a queue, let it go, and wait for the last end."""
    identity = load_identity(living.home)
    assert identity is not None
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub = JobServiceStub(channel)
        await _submit(stub, count)
        events = stub.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=-1), timeout=900)
        await asyncio.sleep(0.5)
        found, left = Passage(), count
        living.run("dlq", "admin", "node", "undrain", *nodes)
        begin_s = time.perf_counter()
        async for message in events:
            event = message.event
            if event.kind == "attempt_assigned":
                found.assigned_s[event.job_id] = event.event_time.ToNanoseconds() / 1e9
            elif event.kind == "attempt_running":
                at_s = event.event_time.ToNanoseconds() / 1e9
                found.waits_s.append(at_s - found.assigned_s.get(event.job_id, at_s))
            elif event.kind == "job_completed":
                left -= 1
                if not left:
                    break
        found.took_s = time.perf_counter() - begin_s
        events.cancel()
    return found


async def _submit(stub: JobServiceAsyncStub, count: int) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        spec = job_pb2.JobSpec(
            command=["/bin/true"],
            resources=resource_pb2.ResourceRequest(gpu_count=1),
            working_directory="/tmp",
        )
        request = job_service_pb2.SubmitJobRequest(request_id=f"q-{number}", spec=spec)
        async with gate:
            await stub.SubmitJob(request, timeout=60)

    await asyncio.gather(*(one(number) for number in range(count)))


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=4)
    report = Report.begin("live.dispatch", parser)
    with tempfile.TemporaryDirectory() as directory:
        report.disk(Path(directory))
        with Living(Path(directory)) as living:
            names = [f"n{number}" for number in range(report.options.nodes)]
            agents = [living.start_agent(name, "fake:8xH100-80GB") for name in names]
            living.run("dlq", "admin", "node", "drain", "--yes", *names, "--reason", "bench")
            _measure(report, living, agents, names)
    report.end()


def _measure(
    report: Report, living: Living, agents: list[subprocess.Popen[bytes]], names: list[str]
) -> None:
    count = report.options.jobs
    everybody = [living.master, *agents]
    before = [spent_s(daemon.pid) for daemon in everybody]
    found = asyncio.run(passage(living, count, names))
    after = [spent_s(daemon.pid) for daemon in everybody]
    report.figure("jobs passed", count / found.took_s, "/s", note=f"{count} jobs")
    per_job_ms = [
        tuple(1e3 * (new - old) / count for new, old in zip(late, early, strict=True))
        for late, early in zip(after, before, strict=True)
    ]
    agents_ms = sum(own for own, _ in per_job_ms[1:])
    shims_ms = sum(below for _, below in per_job_ms[1:])
    report.figure("master, with the submit, a job", per_job_ms[0][0], "ms of CPU")
    report.figure("agents, a job", agents_ms, "ms of CPU")
    report.figure("shims and jobs, a job", shims_ms, "ms of CPU")
    whole_ms = per_job_ms[0][0] + agents_ms + shims_ms
    report.figure("whole chain, a job", whole_ms, "ms of CPU", at_most=9)
    report.figure("assigned to running, p50", percentile(found.waits_s, 0.5), "s")
    report.figure("assigned to running, p99", percentile(found.waits_s, 0.99), "s", at_most=1)


if __name__ == "__main__":
    main()
