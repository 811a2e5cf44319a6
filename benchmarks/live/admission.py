"""How long a user waits for a promise: 1,000 guaranteed jobs, 960 virtual GPUs, a real master and
its planner.

    python -m benchmarks.live.admission [--policy dlq] [--jobs N] [--asks N] [--json]

120 virtual nodes of 8 GPUs (`virtual_nodes`) on the line. First jobs with far deadlines come until
this number is guaranteed. Then strict deadlines are asked for one after another, with jobs and
deadlines drawn as in `slo_jobs`. Printed: the time from sending SubmitJob to the event
`promise_made` or `promise_refused`, for a client that follows the events. Also the time to the
answer of the submit itself. The log gives the planning part of it. Goal of issue 8: 50 ms for the
99th percentile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import aio, ssl_channel_credentials

from benchmarks.live.slo_cycle import log_of
from benchmarks.papers import slo_jobs
from benchmarks.support.conditions import percentile
from benchmarks.support.crowd import GPUS, SETTINGS, children_s, joined
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.virtual_nodes import RUN, Fleet
from dlq.v1 import job_pb2, job_service_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity
from dlq_master.serving import read_authority

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

GOAL_MS = 50.0
NODES = 120
SEED = slo_jobs.SELECTOR_SEEDS[0]
STRETCH = 6.0  # of the deadlines of the first jobs: all that work cannot be done in time else
VERDICTS = ("promise_made", "promise_refused")
PATIENCE_S = 120.0
_PAUSE_S = 0.1  # between two that ask: longer than an answer takes


@dataclass(slots=True)
class Verdicts:
    """The journal's verdict on each job, and its time."""

    counts: Counter[str] = field(default_factory=Counter)
    at_s: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, stub: JobServiceAsyncStub) -> None:
        """Until it is cancelled."""
        events: Any = stub.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=-1), timeout=3600)
        async for message in events:
            event = message.event
            if event.kind in VERDICTS and event.job_id not in self.at_s:
                self.at_s[event.job_id] = time.perf_counter()
                self.counts[event.kind] += 1
                self.changed.set()

    async def of(self, job_id: str) -> float:
        """When the job's verdict came."""
        async with asyncio.timeout(PATIENCE_S):
            while job_id not in self.at_s:
                self.changed.clear()
                await self.changed.wait()
        return self.at_s[job_id]


class Asker:
    """A user with deadlines."""

    def __init__(self, stub: JobServiceAsyncStub) -> None:
        self._stub = stub
        self._count = 0

    async def ask(self, job: slo_jobs.Drawn) -> tuple[str, float, float]:
        """The job's id, and when it was sent and answered."""
        self._count += 1
        spec = job_pb2.JobSpec(
            command=["/bin/true"],
            working_directory="/tmp",
            environment={RUN: f"{job.runtime_s:.3f}"},
        )
        spec.resources.gpu_count = job.gpus
        spec.run_estimate_duration.FromNanoseconds(round(job.runtime_s * 1e9))
        ((due_s, reward),) = job.steps
        spec.deadlines.add(reward=reward).due_duration.FromNanoseconds(round(due_s * 1e9))
        request_id = f"{os.getpid()}-{self._count}"
        sent_s = time.perf_counter()
        answer = await self._stub.SubmitJob(
            job_service_pb2.SubmitJobRequest(request_id=request_id, spec=spec), timeout=60
        )
        return answer.job.job_id, sent_s, time.perf_counter()


def _drawn(draw: random.Random, stretch: float) -> slo_jobs.Drawn:
    """One job; its last deadline is `stretch` times as far ahead."""
    job = slo_jobs.draw_one(draw, slo_jobs.width(draw.random(), 0.0))
    due_s, reward = job.steps[-1]
    return job._replace(steps=((stretch * due_s, reward),))


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--policy", default="dlq")
    parser.add_argument("--jobs", type=int, default=1000, help="with deadlines, before")
    parser.add_argument("--asks", type=int, default=300)
    report = Report.begin("live.admission", parser)
    settings = SETTINGS.format(policy=report.options.policy)
    with tempfile.TemporaryDirectory() as place, Living(Path(place), settings) as living:
        living.start_anew(joined(NODES))
        identity = load_identity(living.home)
        assert identity is not None
        asyncio.run(_measure(report, living, identity))
    report.end()


async def _measure(report: Report, living: Living, identity: Identity) -> None:
    fleet = Fleet(identity.address, read_authority(living.state_dir, "bench"), NODES, GPUS)
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub: JobServiceAsyncStub = JobServiceStub(channel)  # its asynchronous face
        verdicts = Verdicts()
        following = asyncio.create_task(verdicts.follow(stub))
        await fleet.join()
        await asyncio.sleep(0.5)  # the watch stands before the first submit
        asker = Asker(stub)
        begin_s = time.perf_counter()
        draw = random.Random(SEED)
        while (missing := report.options.jobs - verdicts.counts["promise_made"]) > 0:
            asked = [await asker.ask(_drawn(draw, STRETCH)) for _ in range(missing)]
            for job_id, *_ in asked:
                await verdicts.of(job_id)
        report.say(
            f"{len(verdicts.at_s)} jobs judged in {time.perf_counter() - begin_s:.1f} s: "
            f"{dict(verdicts.counts)}; {fleet.tally.counts['starts']} run"
        )
        await _ask(report, living, asker, verdicts)
        fleet.check()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await fleet.close()


async def _ask(report: Report, living: Living, asker: Asker, verdicts: Verdicts) -> None:
    draw = random.Random(SEED + 1)
    told_ms, answered_ms = [], []
    before, guaranteed = dict(verdicts.counts), verdicts.counts["promise_made"]
    used_s, beside_s = cpu_s(living.master.pid), children_s(living.master.pid)
    for _ in range(report.options.asks):
        job_id, sent_s, answered_s = await asker.ask(_drawn(draw, 1.0))
        told_ms.append(1e3 * (await verdicts.of(job_id) - sent_s))
        answered_ms.append(1e3 * (answered_s - sent_s))
        await asyncio.sleep(_PAUSE_S)
    made, refused = (verdicts.counts[kind] - before.get(kind, 0) for kind in VERDICTS)
    name = f"{report.options.policy}, {guaranteed} guaranteed, {NODES * GPUS} GPUs"
    note = f"{made} promised, {refused} refused"
    for share in (0.5, 0.99):
        report.figure(
            f"{name}: submit to verdict, p{100 * share:g}", percentile(told_ms, share), "ms",
            at_most=GOAL_MS if share > 0.5 else None, note=note,
        )  # fmt: skip
    report.figure(f"{name}: submit to verdict, the longest", max(told_ms), "ms")
    report.figure(f"{name}: submit to its answer, p99", percentile(answered_ms, 0.99), "ms")
    made_s = [row["plan_s"] for row in log_of(living) if row.get("event") == "plan_made"]
    plan_ms = [1e3 * seconds for seconds in made_s[-report.options.asks :]]
    for share in (0.5, 0.99):
        figure = percentile(plan_ms, share)
        report.figure(f"{name}: of it in the planner, p{100 * share:g}", figure, "ms")
    used_ms = 1e3 * (cpu_s(living.master.pid) - used_s) / len(told_ms)
    report.figure(f"{name}: CPU of the master for each", used_ms, "ms")
    beside_ms = 1e3 * (children_s(living.master.pid) - beside_s) / len(told_ms)
    report.figure(f"{name}: CPU of planner and twin for each", beside_ms, "ms")


if __name__ == "__main__":
    main()
