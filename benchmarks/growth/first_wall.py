"""The first wall of one master as its cluster grows: the real core in the simulator, the rest on
paper.

    python -m benchmarks.growth.first_wall [--gpus 1000,10000,100000] [--policy dlq] [--json]

Each cluster is full, and a tenth of its jobs more wait; Philly-like jobs arrive as others end. The
core's CPU is measured over a window of simulated time. The rest of the master is added on paper,
from costs that `live.submits`, `live.dispatch` and `growth` measure. The wall is the first size at
which all of it takes one core, or at which one plan takes longer than a second.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from benchmarks.planning.simulate import philly_like
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.daemon.collector import NEVER, YOUNG
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster

WAITING = 0.1  # of the jobs that run
GPUS_A_NODE = 8
SIZES = "1000,3000,10000,30000,100000"
LONGEST_PLAN_MS = 1000.0  # all callers wait meanwhile


class Costs(NamedTuple):
    """CPU of the master beside its core: milliseconds a job, microseconds a second and agent."""

    submit_ms: float
    job_ms: float
    agent_us_s: float

    def whole(self, core: float, jobs_s: float, agents: int) -> float:
        """The share of one core that all of a master takes."""
        return core + jobs_s * (self.submit_ms + self.job_ms) / 1e3 + agents * self.agent_us_s / 1e6


class Load(NamedTuple):
    """The load of one size: shares are of one core."""

    gpus: int
    jobs_s: float
    core: float
    jobs: float
    agents: float
    p99_ms: float
    longest_ms: float

    @property
    def whole(self) -> float:
        return self.core + self.jobs + self.agents


def full_from_the_start(gpus: int, window_s: float, seed: int) -> Trace:
    """Jobs that fill the cluster at once, a tenth more that wait, and arrivals over the window."""
    draw = random.Random(seed)
    sample = philly_like(20_000, gpus, seed).jobs
    work = sum(job.num_gpus * job.duration_s for job in sample) / len(sample)
    # Jobs of the start are somewhere in their lives, and a long job is met there more often.
    up_to = [*accumulate(job.duration_s for job in sample)]
    begun: list[TraceJob] = []
    asked = 0
    while asked < gpus * (1 + WAITING):
        begun += draw.choices(sample, cum_weights=up_to)
        asked += begun[-1].num_gpus
    came = draw.choices(sample, k=int(window_s * gpus / work))
    rows = []
    for number, job in enumerate([*begun, *came]):
        submit_s = 0 if number < len(begun) else draw.randrange(1, int(window_s))
        left_s = job.duration_s if submit_s else max(1, round(job.duration_s * draw.random()))
        rows.append(
            TraceJob(
                job_id=str(number), submit_time_s=submit_s, num_gpus=job.num_gpus,
                duration_s=left_s,
            )
        )  # fmt: skip
    rows.sort(key=lambda row: row.submit_time_s)
    return Trace.of(f"full, {gpus} GPUs, seed {seed}", rows)


def measured(gpus: int, policy: str, window_s: float, seed: int, costs: Costs) -> Load:
    """The core's load by the simulator, and the rest on paper."""
    spec = read_cluster(f"{gpus // GPUS_A_NODE}x{GPUS_A_NODE}")
    trace = full_from_the_start(gpus, window_s, seed)
    run = Replay(trace, spec, read_settings([policy], (), seed)[0])
    run.run(until_s=1)  # the first plan fills the cluster: a master does that once
    plans = len(run.plan_times_s)
    gc.collect()
    gc.freeze()  # as the daemon does once it has loaded
    begin_s = time.process_time()
    run.run(until_s=int(window_s))
    core_s = time.process_time() - begin_s
    took_ms = [1e3 * plan_s for plan_s in run.plan_times_s[plans:]]
    arrived = sum(1 for row in trace.jobs if row.submit_time_s)
    jobs_s = arrived / window_s
    return Load(
        gpus, jobs_s,
        core=core_s / window_s,
        jobs=jobs_s * (costs.submit_ms + costs.job_ms) / 1e3,
        agents=gpus / GPUS_A_NODE * costs.agent_us_s / 1e6,
        p99_ms=percentile(took_ms, 0.99), longest_ms=max(took_ms),
    )  # fmt: skip


def wall(loads: Sequence[Load]) -> str:
    """The first size that is too much, and the part of the master that takes the most there."""
    for load in loads:
        parts = {"the core": load.core, "jobs": load.jobs, "agents": load.agents}
        most = max(parts, key=lambda name: parts[name])
        if load.whole >= 1:
            return f"{load.gpus:,} GPUs: {load.whole:.2f} cores, most of it {most}"
        if load.longest_ms > LONGEST_PLAN_MS:
            return f"{load.gpus:,} GPUs: one plan takes {load.longest_ms:.0f} ms"
    last = loads[-1]
    return f"none up to {last.gpus:,} GPUs, which take {last.whole:.2f} of one core"


def add_costs(options: argparse.ArgumentParser) -> None:
    """The options for what is on paper."""
    options.add_argument("--submit-ms", type=float, default=0.6, help="CPU of a submit")
    options.add_argument("--job-ms", type=float, default=3.5, help="of a start and an end")
    options.add_argument("--agent-us", type=float, default=100.0, help="of an agent, each second")


def costs_of(chosen: argparse.Namespace) -> Costs:
    """Their values."""
    return Costs(chosen.submit_ms, chosen.job_ms, chosen.agent_us)


def main() -> None:
    """Measure each size."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--gpus", default=SIZES, help="sizes of the cluster")
    options.add_argument("--policy", default="dlq")
    options.add_argument("--window", type=float, default=600.0, help="simulated seconds")
    options.add_argument("--seed", type=int, default=0)
    add_costs(options)
    report = Report.begin("growth.first_wall", options)
    chosen = report.options
    costs = costs_of(chosen)
    gc.set_threshold(*YOUNG, NEVER)  # as the daemon does
    report.say(
        f"on paper: {costs.submit_ms:g} ms a submit, {costs.job_ms:g} ms a start and an end, "
        f"{costs.agent_us_s:g} us a second and agent"
    )
    loads = []
    for gpus in map(int, chosen.gpus.split(",")):
        load = measured(gpus, chosen.policy, chosen.window, chosen.seed, costs)
        loads.append(load)
        report.figure(
            f"{gpus:,} GPUs, share of one core", load.whole, "",
            note=f"{load.jobs_s:.2f} jobs/s; core {load.core:.3f}, jobs {load.jobs:.3f}, agents "
            f"{load.agents:.3f}; plans p99 {load.p99_ms:.1f} ms, longest {load.longest_ms:.0f} ms",
        )  # fmt: skip
    report.say(f"the first wall: {wall(loads)}")
    report.end()


if __name__ == "__main__":
    main()
