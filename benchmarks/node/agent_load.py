"""The cost of an agent to its host: processor and memory with 8 and with 64 tasks, and a flood of
output.

    python -m benchmarks.node.agent_load [--tasks 8,64] [--seconds S] [--windows N] [--json]

A real master and agent with virtual GPUs; every task is a job of one GPU that beats once a second,
as dlq_train does. Heartbeats go every 5 s, the default. After a warm-up, over some windows: CPU
seconds per second of the agent, and of one shim (from schedstat, in nanoseconds); then their
memory: RSS, and PSS, which divides the shared pages of several processes.

Then eight of the tasks write as much as they can and four of them are followed by `dlq logs -f`,
with a heartbeat every second. Printed is the longest time between two answered heartbeats, by the
agent's contact file, as shims see it. Goal, of issue 3: 5 s. The other goals are ours. With 64
tasks an agent takes 5 % of a core and 150 MiB, and a shim 0.1 % and 1 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import aio, ssl_channel_credentials

import dlq_train
from benchmarks.support.conditions import percentile
from benchmarks.support.living import BIN, Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_pb2, job_service_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

PROGRAM = Path(__file__).with_name("beating_job.py")
LIBRARY = Path(dlq_train.__file__).parent.parent
LONGEST_S = 900
WARM_UP_S = 10.0
FLOODING, FOLLOWED = 8, 4
AGENT_CORE_PERCENT, AGENT_MIB = 5.0, 150.0
SHIM_CORE_PERCENT, SHIM_MIB = 0.1, 1.0
GAP_S = 5.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Crew:
    """The agent's process and one shim for each of its tasks."""

    agent: int
    shims: tuple[int, ...]
    contact: Path


async def start_jobs(identity: Identity, count: int, mark: Path) -> list[str]:
    """Submit `count` jobs, the first few with a flood in them, and wait until all of them run."""
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub: JobServiceAsyncStub = JobServiceStub(channel)  # its asynchronous face
        events = stub.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=-1), timeout=600)
        await asyncio.sleep(0.5)  # the watch stands before the first submit
        jobs = [await _submit(stub, number, mark) for number in range(count)]
        waiting = set(jobs)
        async for message in events:
            if message.event.kind == "attempt_running":
                waiting.discard(message.event.job_id)
            if not waiting:
                break
        events.cancel()
    return jobs


async def _submit(stub: JobServiceAsyncStub, number: int, mark: Path) -> str:
    flood = [str(mark)] if number < FLOODING else []
    spec = job_pb2.JobSpec(
        command=[sys.executable, str(PROGRAM), str(LONGEST_S), *flood],
        working_directory="/tmp",
        environment={"PYTHONPATH": str(LIBRARY)},
    )
    spec.resources.gpu_count = 1
    request = job_service_pb2.SubmitJobRequest(request_id=f"{os.getpid()}-{number}", spec=spec)
    return (await stub.SubmitJob(request, timeout=30)).job.job_id


def children(pid: int) -> tuple[int, ...]:
    """The children of a process, made by any of its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return tuple(found)


def ran_s(pid: int) -> float:
    """Time on a processor of a process with one thread, exactly."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_mib(pid: int, figure: str) -> float:
    """`Rss` or `Pss` of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{figure}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {figure} of {pid}")


def contact_s(path: Path) -> float:
    """When the last answered heartbeat was sent (shim/contact.py has the layout)."""
    instant: int = struct.unpack_from("<q", path.read_bytes(), 8)[0]
    return instant / 1e9


def longest_gap_s(path: Path, seconds: float) -> float:
    """The longest time between two contacts that followed each other, or since the last."""
    end_s, last_s, longest_s = time.monotonic() + seconds, contact_s(path), 0.0
    while time.monotonic() < end_s:
        time.sleep(_LOOK_S)
        now_s = contact_s(path)
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    return max(longest_s, time.clock_gettime(time.CLOCK_BOOTTIME) - last_s)


def watch(crew: Crew, seconds: float) -> tuple[float, float, float]:
    """One window: CPU seconds a second of the agent, and of a shim in the mean; the longest gap."""
    begin_s, agent_s = time.monotonic(), cpu_s(crew.agent)
    shims_s = sum(map(ran_s, crew.shims))
    gap_s = longest_gap_s(crew.contact, seconds)
    took_s = time.monotonic() - begin_s
    shims_s = sum(map(ran_s, crew.shims)) - shims_s
    return (cpu_s(crew.agent) - agent_s) / took_s, shims_s / len(crew.shims) / took_s, gap_s


def measure(report: Report, tasks: int) -> None:
    """A cluster of one node with this number of tasks, at its default heartbeat."""
    with tempfile.TemporaryDirectory() as name, Living(Path(name)) as living:
        crew, jobs = begin(living, tasks)
        found = [watch(crew, report.options.seconds) for _ in range(report.options.windows)]
        agents, shims = ([100 * window[at] for window in found] for at in (0, 1))
        gap_s = max(window[2] for window in found)
        most = tasks == max(report.options.tasks)
        _tell(report, f"{tasks} tasks: agent", agents, AGENT_CORE_PERCENT if most else None)
        _tell(report, f"{tasks} tasks: one shim", shims, SHIM_CORE_PERCENT if most else None)
        rss, pss = (memory_mib(crew.agent, figure) for figure in ("Rss", "Pss"))
        report.figure(
            f"{tasks} tasks: agent, RSS", rss, "MiB",
            at_most=AGENT_MIB if most else None, note=f"PSS {pss:.1f}",
        )  # fmt: skip
        rss, pss = (
            sum(memory_mib(shim, figure) for shim in crew.shims) / tasks
            for figure in ("Rss", "Pss")
        )
        report.figure(
            f"{tasks} tasks: one shim, PSS", pss, "MiB",
            at_most=SHIM_MIB if most else None, note=f"RSS {rss:.1f}, mean of {tasks}",
        )  # fmt: skip
        report.figure(f"{tasks} tasks: longest gap between heartbeats of 5 s", gap_s, "s")
        end(living, jobs)


def flood(report: Report, tasks: int) -> None:
    """The same with a heartbeat every second, while some of the tasks flood their output."""
    with (
        tempfile.TemporaryDirectory() as name,
        Living(Path(name), '\n[lease]\nheartbeat = "1s"\n') as living,
    ):
        crew, jobs = begin(living, tasks)
        calm_s = longest_gap_s(crew.contact, report.options.seconds)
        mark = living.root / "flood"
        mark.touch()
        followers = [
            subprocess.Popen(
                [BIN / "dlq", "logs", "-f", job],
                env=living.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for job in jobs[:FOLLOWED]
        ]  # fmt: skip
        longest_s = longest_gap_s(crew.contact, report.options.windows * report.options.seconds)
        mark.unlink()
        for follower in followers:
            follower.kill()
            follower.wait()
        report.figure(
            f"{tasks} tasks, {FLOODING} of them flooding: longest gap between heartbeats of 1 s",
            longest_s, "s", at_most=GAP_S, note=f"{calm_s:.2f} before the flood",
        )  # fmt: skip
        end(living, jobs)


def begin(living: Living, tasks: int) -> tuple[Crew, list[str]]:
    """An agent whose tasks have all run for a while."""
    agent = living.start_agent("n1", f"fake:{tasks}xH100-80GB")
    identity = load_identity(living.home)
    assert identity is not None
    jobs = asyncio.run(start_jobs(identity, tasks, living.root / "flood"))
    time.sleep(WARM_UP_S)
    (launcher,) = children(agent.pid)
    crew = Crew(agent.pid, children(launcher), living.root / "n1" / "contact")
    if len(crew.shims) != tasks:
        raise SystemExit(f"{len(crew.shims)} shims for {tasks} tasks: a task has ended early")
    return crew, jobs


def end(living: Living, jobs: list[str]) -> None:
    """End the jobs; they would outlive their agent."""
    living.run("dlq", "cancel", "--kill", "--wait", "--yes", *jobs)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--tasks", type=lambda text: [int(part) for part in text.split(",")], default=[8, 64]
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of one window")
    parser.add_argument("--windows", type=int, default=3)
    report = Report.begin("node.agent_load", parser)
    for tasks in report.options.tasks:
        measure(report, tasks)
    flood(report, max(report.options.tasks))
    report.end()


def _tell(report: Report, who: str, percents: list[float], at_most: float | None) -> None:
    note = (
        f"of a core; least {min(percents):.3f}, most {max(percents):.3f} of {len(percents)} windows"
    )
    report.figure(f"{who}, CPU", percentile(percents, 0.5), "%", at_most=at_most, note=note)


if __name__ == "__main__":
    main()
