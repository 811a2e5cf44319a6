"""Jobs per second of `dlq simulate`: its CPU time from the start of the process to its end.

    python -m benchmarks.planning.simulate      (20,000 generated Philly-like jobs on 120x8)
    python -m benchmarks.planning.simulate philly_jobs.csv.gz [--policy NAME...]
        [--times 3] [--json]

With a trace: every policy, on 60x8 and on 120x8, the best of three. Goals: fifo 5,000 jobs a
second, tiresias-las 2,000, the others 500; less than 1 GiB. Published peers on Philly loads, also
by CPU time: 440 (Tiresias simulator, FIFO), 455 (Lucid), 713 (Muri, SRTF).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.support.report import Report
from dlq_simulator.generate.command import write_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster

# Shares of GPU counts and the spread of run times, after Microsoft's Philly trace (ATC 2019).
# Mostly one GPU, a median of about ten minutes, and a long tail. It is cut at a day, so that the
# load soon reaches its steady state. LOAD is offered work over the cluster's capacity.
WIDTHS = {1: 0.80, 2: 0.07, 4: 0.06, 8: 0.05, 16: 0.015, 32: 0.005}
MEDIAN_S, SIGMA, LONGEST_S = 600.0, 1.9, 86_400
LOAD = 1.3
GENERATED = ("fifo", "best-effort", "tiresias-las")  # `make bench` has to end
REAL = (*GENERATED, "sf", "srtf", "srsf", "timeslice", "tiresias-gittins")
GOALS = {"fifo": 5000.0, "tiresias-las": 2000.0}
ANY_POLICY = 500.0
MEMORY_MIB = 1024.0


class Run(NamedTuple):
    """The cost of one process, and its printed result for its policy."""

    cpu_s: float
    rss_mib: float
    told: dict[str, Any]


def philly_like(jobs: int, gpus: int, seed: int) -> Trace:
    """Poisson arrivals that offer LOAD times the capacity of `gpus` GPUs."""
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


def run(trace: Path, cluster: str, policy: str, settings: list[str]) -> Run:
    """One `dlq simulate` in a process of its own."""
    command = [sys.executable, "-m", "dlq_cli.main", "simulate", str(trace), "--json"]
    command += ["--cluster", cluster, "--policy", policy]
    for word in settings:
        command += ["--set", word]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"`{' '.join(command)}` ended with {process.returncode}")
        out.seek(0)
        (told,) = json.load(out)["policies"]
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, told)


def show(report: Report, cluster: str, runs: list[Run]) -> None:
    """The best of the runs of one policy, and the time of its plans."""
    best = min(runs, key=lambda one: one.cpu_s)
    told = best.told
    name = f"{told['policy']} on {cluster}"
    every = ", ".join(f"{one.cpu_s:.1f}" for one in runs)
    report.figure(
        name, told["jobs"] / best.cpu_s, "jobs/s",
        at_least=GOALS.get(told["policy"], ANY_POLICY),
        note=f"cpu {every} s, avg JCT {told['avg_jct_s']:.1f} s, {told['preemptions']} preemptions",
    )  # fmt: skip
    rss_mib = max(one.rss_mib for one in runs)
    report.figure(f"{name}, most memory", rss_mib, "MiB", at_most=MEMORY_MIB)
    for share in ("p50", "p99"):
        took_ms = told["timing"][f"plan_ms_{share}"]
        if took_ms is not None:
            report.figure(f"{name}, one plan, {share}", took_ms, "ms")


def main() -> None:
    """Replay under each policy."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("trace", nargs="?", type=Path, help="a trace file, not the generated load")
    options.add_argument("--cluster", action="append", metavar="NxG")
    options.add_argument("--policy", action="append", metavar="NAME")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options.add_argument("--times", type=int, help="runs of each, of which the best counts")
    options.add_argument("--jobs", type=int, default=20_000, help="of the generated load")
    options.add_argument("--seed", type=int, default=0, help="of the generated load")
    report = Report.begin("planning.simulate", options)
    chosen = report.options
    clusters = chosen.cluster or (["60x8", "120x8"] if chosen.trace else ["120x8"])
    policies = chosen.policy or (REAL if chosen.trace else GENERATED)
    times = chosen.times or (3 if chosen.trace else 1)
    with tempfile.TemporaryDirectory() as directory:
        for cluster in clusters:
            path = chosen.trace
            if path is None:
                path = Path(directory, "philly-like.csv")
                gpus = read_cluster(cluster).gpus
                with path.open("w", newline="") as file:
                    write_trace(file, philly_like(chosen.jobs, gpus, chosen.seed))
            report.say(f"{path.name} on {cluster}, settings {chosen.set or '-'}, best of {times}")
            for policy in policies:
                runs = [run(path, cluster, policy, chosen.set) for _ in range(times)]
                show(report, cluster, runs)
    report.end()


if __name__ == "__main__":
    main()
