"""Jobs per second of `dlq simulate`, one line a policy, beside the conditions of the run.

    python -m benchmarks.simulate                       a generated Philly-like load
    python -m benchmarks.simulate --trace FILE.csv.gz --cluster 120x8 [--json]

CPU time of one process. Goals: fifo 5,000 jobs a second, tiresias-las 2,000. Published peers on a
Philly load: 440 (Tiresias simulator, FIFO), 455 (Lucid), 713 (Muri, SRTF).
"""

from __future__ import annotations

import argparse
import random

from benchmarks.report import Report

from dlq_simulator.clusters import read_cluster
from dlq_simulator.engine import replay
from dlq_simulator.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob

# Shares of GPU counts and the spread of run times, after Microsoft's Philly trace (ATC 2019):
# mostly one GPU, a median of about ten minutes, a long tail (cut at a day, so that the load soon
# reaches its steady state). LOAD is work offered over what the cluster can do.
WIDTHS = {1: 0.80, 2: 0.07, 4: 0.06, 8: 0.05, 16: 0.015, 32: 0.005}
MEDIAN_S, SIGMA, LONGEST_S = 600.0, 1.9, 86_400
LOAD = 1.3
POLICIES = ("fifo", "best-effort", "tiresias-las")
GOALS = {"fifo": 5000.0, "tiresias-las": 2000.0}


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


def show(report: Report, result: Result, jobs: int) -> None:
    """The rate of one policy, and what its plans took."""
    timing = result.timing
    report.figure(
        result.policy, jobs / timing.cpu_s, "jobs/s",
        at_least=GOALS.get(result.policy),
        note=f"cpu {timing.cpu_s:.2f} s, avg JCT {result.metrics.avg_jct_s:.1f} s, "
        f"{result.metrics.preemptions} preemptions",
    )  # fmt: skip
    for share, took_ms in (("p50", timing.plan_ms_p50), ("p99", timing.plan_ms_p99)):
        if took_ms is not None:
            report.figure(f"{result.policy}, one plan, {share}", took_ms, "ms")


def main() -> None:
    """Replay under each policy."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--trace", help="a trace file instead of the generated load")
    options.add_argument("--cluster", default="120x8")
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options.add_argument("--policy", action="append", metavar="NAME")
    report = Report.begin("simulate", options)
    chosen = report.options
    cluster = read_cluster(chosen.cluster)
    trace = (
        read_trace(chosen.trace)
        if chosen.trace
        else philly_like(chosen.jobs, cluster.gpus, chosen.seed)
    )
    report.say(
        f"{trace.path} on {cluster.name} ({cluster.gpus} GPUs), settings {chosen.set or '-'}"
    )
    for settings in read_settings(chosen.policy or POLICIES, chosen.set):
        show(report, replay(trace, cluster, settings), len(trace.jobs))
    report.end()


if __name__ == "__main__":
    main()
