"""A master's use of a core with 1,000 agents, 10,000 jobs in the queue, and 20 starts and ends a
second.

    python -m benchmarks.live.busy_master [--policy dlq] [--agents N] [--queued N] [--rate R]
        [--windows N] [--json]

A real master, and agents of 8 virtual GPUs (`virtual_nodes`) that live in the process of the
benchmark. Each has its own certificate and a heartbeat every 5 s, in which every rank reports its
step. Jobs of 1 to 8 GPUs come as fast as they end, one call after another. Half of them have an
estimate of their run time. Their run times are drawn so that the cluster ends the wanted number a
second. Printed over windows: CPU seconds a second of the master's process alone (all its threads),
and beside it those of its planner and of its twin. Also the starts and ends that the agents saw,
and the delays of heartbeats and submits. Goal of issue 8: 60 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import aio, ssl_channel_credentials

from benchmarks.node.agent_load import children
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.virtual_nodes import RUN, Fleet
from dlq.v1 import job_pb2, job_service_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Gpu, Node, NodeState
from dlq_master.serving import read_authority
from dlq_master.store.batch import Batch

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

Measure = Callable[[Report, Living, Identity], Coroutine[Any, Any, None]]

GOAL_PERCENT = 60.0
GPUS = 8
WIDTHS = {1: 0.5, 2: 0.2, 4: 0.15, 8: 0.15}
# Shares of the mean run time: of new jobs, and of the rest of running jobs.
WHOLE, LEFT = (0.5, 1.5), (0.0, 1.0)
IN_FLIGHT = 32  # submits while the queue is made
SETTINGS = """queued_per_user = 1000000
submit_burst = 1000000
[nodes]
start_grace = "0s"
[scheduler]
policy = "{policy}"
"""


class Crowd:
    """The submitters, and their jobs."""

    def __init__(self, stub: JobServiceAsyncStub, mean_s: float) -> None:
        self._stub = stub
        self._mean_s = mean_s
        self._draw = random.Random(1)
        self.took_s: list[float] = []
        self.count = 0

    async def fill(self, count: int, shares: tuple[float, float]) -> None:
        """Submit `count` jobs, whose run times lie between these shares of the mean."""
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                await self.submit(shares)

        await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))

    async def submit(self, shares: tuple[float, float] = WHOLE) -> None:
        """One job."""
        self.count += 1
        run_s = self._mean_s * self._draw.uniform(*shares)
        spec = job_pb2.JobSpec(
            command=["/bin/true"], working_directory="/tmp", environment={RUN: f"{run_s:.3f}"}
        )
        spec.resources.gpu_count = self._draw.choices([*WIDTHS], [*WIDTHS.values()])[0]
        if self._draw.random() < 0.5:
            spec.run_estimate_duration.FromSeconds(1 + round(run_s * self._draw.uniform(0.7, 1.3)))
        start_s = time.perf_counter()
        await self._stub.SubmitJob(
            job_service_pb2.SubmitJobRequest(request_id=f"{os.getpid()}-{self.count}", spec=spec),
            timeout=60,
        )
        self.took_s.append(time.perf_counter() - start_s)


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--policy", default="dlq")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=20.0, help="ends a second")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=60.0, help="of one window")
    parser.add_argument("--windows", type=int, default=4)
    report = Report.begin("live.busy_master", parser)
    with_nodes(report, _measure)
    report.end()


def with_nodes(report: Report, measure: Measure, master: tuple[str, ...] = ("dlq-master",)) -> None:
    """Measure a master with `--policy` that knows `--agents` nodes; `master` starts it."""
    settings = SETTINGS.format(policy=report.options.policy)
    with tempfile.TemporaryDirectory() as place, Living(Path(place), settings, master) as living:
        living.start_anew(joined(report.options.agents))
        identity = load_identity(living.home)
        assert identity is not None
        asyncio.run(measure(report, living, identity))


def joined(agents: int) -> Batch:
    """Nodes that have joined before, and are not there yet."""
    gpus = tuple(Gpu(index=index, gpu_type="h100") for index in range(GPUS))
    names = [NodeId(f"n{number:04d}") for number in range(agents)]
    return Batch(nodes=[Node(name, gpus, virtual=True, state=NodeState.DOWN) for name in names])


async def _measure(report: Report, living: Living, identity: Identity) -> None:
    chosen = report.options
    fleet = Fleet(identity.address, read_authority(living.state_dir, "bench"), chosen.agents, GPUS)
    mean_width = sum(width * share for width, share in WIDTHS.items())
    running = chosen.agents * GPUS / mean_width
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    pid = living.master.pid
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        crowd = Crowd(JobServiceStub(channel), running / chosen.rate)
        begin_s, used_s = time.monotonic(), cpu_s(pid)
        await fleet.join()
        used_s = cpu_s(pid) - used_s
        report.figure(
            f"{chosen.agents} agents join, CPU of the master", used_s, "s",
            note=f"in {time.monotonic() - begin_s:.1f} s",
        )  # fmt: skip
        await crowd.fill(round(running), LEFT)
        await crowd.fill(chosen.queued, WHOLE)
        ended = fleet.tally.counts["completions"]
        replace = asyncio.create_task(replace_ended(crowd, fleet, ended))
        await asyncio.sleep(chosen.warm_up)
        await _windows(report, living, fleet, crowd)
        replace.cancel()
        await asyncio.gather(replace, return_exceptions=True)
        await fleet.close()


async def replace_ended(crowd: Crowd, fleet: Fleet, from_count: int) -> None:
    """For every job that ends another comes."""
    came = 0
    while True:
        if fleet.tally.counts["completions"] - from_count > came:
            came += 1
            await crowd.submit()
        else:
            await asyncio.sleep(0.01)


async def _windows(report: Report, living: Living, fleet: Fleet, crowd: Crowd) -> None:
    chosen, pid, tally = report.options, living.master.pid, fleet.tally
    cores: list[float] = []
    others: list[float] = []
    tally.beats_s.clear()
    crowd.took_s.clear()
    before, begin_s = dict(tally.counts), time.monotonic()
    for _ in range(chosen.windows):
        since_s, used_s, beside_s = time.monotonic(), cpu_s(pid), children_s(pid)
        await asyncio.sleep(chosen.seconds)
        fleet.check()
        took_s = time.monotonic() - since_s
        cores.append(100 * (cpu_s(pid) - used_s) / took_s)
        others.append(100 * (children_s(pid) - beside_s) / took_s)
        report.say(f"  {cores[-1]:.1f} % of a core")
    whole_s = time.monotonic() - begin_s
    name = f"{chosen.policy}, {chosen.agents} agents, {chosen.queued} queued"
    report.figure(
        f"{name}: CPU of the master", sum(cores) / len(cores), "%", at_most=GOAL_PERCENT,
        note=f"of a core; {min(cores):.1f} to {max(cores):.1f} in {len(cores)} windows of "
             f"{chosen.seconds:g} s",
    )  # fmt: skip
    report.figure(f"{name}: CPU of its planner and its twin", sum(others) / len(others), "%")
    for what in ("starts", "completions", "pauses"):
        rate = (tally.counts[what] - before.get(what, 0)) / whole_s
        report.figure(f"{name}: {what}", rate, "/s")
    for what, took in (("heartbeat answered", tally.beats_s), ("submit", crowd.took_s)):
        for share in (0.5, 0.99):
            figure = 1e3 * percentile(took, share)
            report.figure(f"{name}: {what}, p{100 * share:g}", figure, "ms")


def children_s(pid: int) -> float:
    """User and system time that the children of a process have used."""
    return sum(cpu_s(child) for child in children(pid))


if __name__ == "__main__":
    main()
