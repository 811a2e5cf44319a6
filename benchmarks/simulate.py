"""Jobs per second of `dlq simulate`, one line a policy, beside the conditions of the run.

    python benchmarks/simulate.py                      a generated Philly-like load
    python benchmarks/simulate.py --trace FILE.csv.gz  --cluster 120x8

Published peers on a Philly load (CPU time): 440 (Tiresias simulator, FIFO), 455 (Lucid), 713
(Muri, SRTF) jobs/s.
"""

from __future__ import annotations

import argparse
import os
import platform
import random

from dlq_simulator.clusters import read_cluster
from dlq_simulator.engine import replay
from dlq_simulator.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import Trace, TraceJob, read_trace

# Shares of GPU counts and the spread of run times, after Microsoft's Philly trace (ATC 2019):
# mostly one GPU, a median of about ten minutes, a long tail (cut at a day, so that the load soon
# reaches its steady state). LOAD is work offered over what the cluster can do.
WIDTHS = {1: 0.80, 2: 0.07, 4: 0.06, 8: 0.05, 16: 0.015, 32: 0.005}
MEDIAN_S, SIGMA, LONGEST_S = 600.0, 1.9, 86_400
LOAD = 1.3
POLICIES = ("fifo", "best-effort", "tiresias-las")


def philly_like(jobs: int, gpus: int, seed: int) -> Trace:
    """Poisson arrivals that offer `gpus` GPUs LOAD times what they can serve."""
    draw = random.Random(seed)
    widths = draw.choices(tuple(WIDTHS), tuple(WIDTHS.values()), k=jobs)
    lengths = [
        max(1, min(LONGEST_S, round(MEDIAN_S * draw.lognormvariate(0, SIGMA)))) for _ in widths
    ]
    work = sum(width * length for width, length in zip(widths, lengths, strict=True))
    gap_s = work / (gpus * LOAD) / jobs
    submit, rows = 0.0, []
    for number, (width, length) in enumerate(zip(widths, lengths, strict=True)):
        rows.append(
            TraceJob(
                job_id=str(number),
                submit_time_s=round(submit),
                num_gpus=width,
                duration_s=length,
            )
        )
        submit += draw.expovariate(1 / gap_s)
    return Trace.of(f"philly-like, {jobs} jobs, seed {seed}", rows)


def show(result: Result, jobs: int) -> None:
    timing = result.timing
    print(
        f"{result.policy:<14} {jobs / timing.cpu_s:>9.0f} jobs/s   cpu {timing.cpu_s:7.2f} s   "
        f"plan p50 {timing.plan_ms_p50:.3f} ms  p99 {timing.plan_ms_p99:.3f} ms   "
        f"avg JCT {result.metrics.avg_jct_s:.1f} s  preemptions {result.metrics.preemptions}",
        flush=True,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--trace", help="a trace file instead of the generated load")
    options.add_argument("--cluster", default="120x8")
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options.add_argument("--policy", action="append", metavar="NAME")
    chosen = options.parse_args()
    cluster = read_cluster(chosen.cluster)
    trace = (
        read_trace(chosen.trace)
        if chosen.trace
        else philly_like(chosen.jobs, cluster.gpus, chosen.seed)
    )
    print(
        f"# Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), "
        f"load average {os.getloadavg()[0]:.1f}; one process, CPU time"
    )
    print(f"# {trace.path} on {cluster.name} ({cluster.gpus} GPUs), settings {chosen.set or '-'}")
    for settings in read_settings(chosen.policy or POLICIES, chosen.set):
        show(replay(trace, cluster, settings), len(trace.jobs))


if __name__ == "__main__":
    main()
