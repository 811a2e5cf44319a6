"""A master that knows nodes of virtual GPUs, and a crowd whose jobs come as fast as others end.

Jobs ask for 1 to 8 GPUs, and half of them have an estimate of their run time. The run times are
drawn so that the cluster ends the wanted number of jobs a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.node.agent_load import children
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.virtual_nodes import RUN, Fleet
from dlq.v1 import job_pb2, job_service_pb2
from dlq_client.line.identity import Identity, load_identity
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Gpu, Node, NodeState
from dlq_master.store.batch import Batch

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

Measure = Callable[[Report, Living, Identity], Coroutine[Any, Any, None]]

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


async def replace_ended(crowd: Crowd, fleet: Fleet, from_count: int) -> None:
    """For every job that ends another comes."""
    came = 0
    while True:
        if fleet.tally.counts["completions"] - from_count > came:
            came += 1
            await crowd.submit()
        else:
            await asyncio.sleep(0.01)


def children_s(pid: int) -> float:
    """User and system time that the children of a process have used."""
    return sum(cpu_s(child) for child in children(pid))
