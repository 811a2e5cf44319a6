"""How soon interactive jobs start on a full cluster, without and with a floor, and its price.

    python -m benchmarks.commands.interactive [--nodes N] [--jobs N] [--seed N] [--json]

Batch jobs as in `planning.simulate` offer more than the cluster can serve. One job in twenty is
interactive. It has one or two GPUs for half an hour in the median, and for eight hours at most. The
same trace is replayed under `dlq` with all jobs in one queue, then with interactive jobs first, and
then with floors. A job starts at once if it has its GPUs within 30 s, whatever
happens later.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from typing import NamedTuple

from benchmarks.planning.simulate import philly_like
from benchmarks.support.report import Report
from dlq_simulator.metrics import ReplayOutcome, mean, percentile
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster

AT_ONCE_S = 30.0
SHARE = 20  # one interactive job to so many batch jobs
MEDIAN_S, SIGMA, LONGEST_S = 1800.0, 1.2, 28_800
DESK = "desk"


class Told(NamedTuple):
    """One replay."""

    at_once: float
    wait_p95_s: float
    batch_jct_s: float
    batch_p95_s: float
    used: float
    cpu_s: float


def main() -> None:
    """Every way to treat interactive jobs, on one trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=7)
    report = Report.begin("commands.interactive", parser)
    asked = report.options
    trace = mixed(asked.jobs, asked.nodes * 8, asked.seed)
    gpus = asked.nodes * 8
    desk_s = sum(row.num_gpus * row.duration_s for row in trace.jobs if row.vc == DESK)
    span_s = trace.jobs[-1].submit_time_s - trace.jobs[0].submit_time_s
    report.say(
        f"{len(trace.jobs)} jobs on {asked.nodes} nodes of 8 GPUs, policy dlq; "
        f"interactive ones use {desk_s / span_s:.1f} GPUs on average"
    )
    plain: Told | None = None
    for name, words in (
        ("one queue for all", []),
        ("first in line, no floor", ["queue_floor=desk:0"]),
        *((f"floor of {share:.0%}", [f"queue_floor=desk:{share}"]) for share in (0.05, 0.1, 0.15)),
    ):
        found = told(trace, f"{asked.nodes}x8", words)
        plain = plain or found
        report.figure(f"{name}: interactive jobs that start at once", 100 * found.at_once, "%")
        report.figure(f"{name}: 95 % of them wait at most", found.wait_p95_s, "s")
        more = 100 * (found.batch_jct_s / plain.batch_jct_s - 1)
        tail = 100 * (found.batch_p95_s / plain.batch_p95_s - 1)
        report.figure(f"{name}: mean time of batch jobs", more, "%", note="against first")
        report.figure(f"{name}: p95 of it", tail, "%", note="against first")
        report.figure(f"{name}: useful work of {gpus} GPUs", 100 * found.used, "%")
    report.end()


def mixed(jobs: int, gpus: int, seed: int) -> Trace:
    """Batch jobs, and interactive ones spread over the same time."""
    batch = philly_like(jobs, gpus, seed).jobs
    draw = random.Random(seed + 1)
    rows = [_in_queue(row, "batch") for row in batch]
    last_s = batch[-1].submit_time_s
    for number in range(jobs // SHARE):
        length = min(LONGEST_S, max(60, round(MEDIAN_S * draw.lognormvariate(0, SIGMA))))
        rows.append(
            TraceJob(
                job_id=f"desk-{number}",
                submit_time_s=round(draw.uniform(0, last_s)),
                num_gpus=draw.choice((1, 1, 1, 2)),
                duration_s=length,
                vc=DESK,
            )
        )
    return Trace.of(f"batch and interactive, seed {seed}", rows)


def told(trace: Trace, cluster: str, words: list[str]) -> Told:
    """The trace replayed with these settings."""
    column = ["queues=vc"] if words else []
    (settings,) = read_settings(["dlq"], ["know=profiled", *words, *column], seed=1)
    result = replay(trace, read_cluster(cluster), settings)
    desk = [one for one in result.outcomes if one.job.vc == DESK]
    batch = [one.jct_s for one in result.outcomes if one.job.vc != DESK]
    waits = [_wait_s(one) for one in desk]
    return Told(
        at_once=sum(wait <= AT_ONCE_S for wait in waits) / len(waits),
        wait_p95_s=percentile(waits, 95) or 0.0,
        batch_jct_s=mean(batch) or 0.0,
        batch_p95_s=percentile(batch, 95) or 0.0,
        used=result.metrics.gpu_utilization or 0.0,
        cpu_s=result.timing.cpu_s or 0.0,
    )


def _wait_s(outcome: ReplayOutcome) -> float:
    return outcome.start_s - outcome.job.submit_time_s


def _in_queue(row: TraceJob, name: str) -> TraceJob:
    return replace(row, vc=name)


if __name__ == "__main__":
    main()
