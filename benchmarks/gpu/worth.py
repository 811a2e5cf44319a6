"""The worth of suspension: short guests on a busy cluster, with and without it.

    python -m benchmarks.gpu.worth [--jobs N] [--nodes N] [--guests X] [--seeds N]
        [--philly TRACE] [--policy NAME] [--json]

Long jobs of one GPU to eight offer `--load` times the work that the nodes of eight GPUs can do.
Short guests come beside them: a share `--guests` of all jobs, of one GPU to four, for one to four
minutes. A job that is preempted for them saves and queues again, or it is suspended in its place.
One that is off its GPUs for an hour is thrown back to what it saved: every 30 minutes of its work.
Rows are what a job holds on each GPU: 10, 30 and 60 GB. A save and a resume take 10 s, and the
bytes over 0.5 GB a second of a shared file system for each GPU. A move takes the bytes over 10 GB a
second. `--philly` takes the jobs of a trace instead, and those of at most four minutes are guests.
A last row has long jobs that cannot save at all: a preemption loses what they did.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from benchmarks.planning.simulate import WIDTHS
from benchmarks.support.report import Report
from dlq_simulator.metrics import mean, percentile
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster

GPU_GB = (10, 30, 60)
FILE_GB_S, BASE_S = 0.5, 10.0
GUEST_S = (60, 240)
LONG_S = (1800.0, 1.0)  # median and sigma of the logarithm
SAVED, SUSPENDED = "saves", "suspended"


class Told(NamedTuple):
    """One replay."""

    guest_waits_s: list[float]
    long_s: list[float]
    makespan_s: float
    moves: int
    preemptions: int
    thrown: int


def mixed(jobs: int, gpus: int, share: float, load: float, seed: int) -> Trace:
    """Long jobs, and guests among them, with Poisson arrivals."""
    draw = random.Random(seed)
    widths = {width: part for width, part in WIDTHS.items() if width <= 8}
    rows, work = [], 0.0
    for number in range(jobs):
        guest = draw.random() < share
        if guest:
            width, length = draw.choice((1, 1, 2, 4)), draw.randint(*GUEST_S)
        else:
            width = draw.choices(tuple(widths), tuple(widths.values()))[0]
            length = round(min(20_000, LONG_S[0] * draw.lognormvariate(0, LONG_S[1])))
            length = max(GUEST_S[1] + 1, length)
        work += width * length
        rows.append(
            TraceJob(job_id=str(number), submit_time_s=0, num_gpus=width, duration_s=length)
        )
    gap_s, at_s = work / (gpus * load) / jobs, 0.0
    timed = []
    for row in rows:
        timed.append(replace(row, submit_time_s=round(at_s)))
        at_s += draw.expovariate(1 / gap_s)
    return Trace.of(f"mixed, {jobs} jobs, seed {seed}", timed)


def told(trace: Trace, nodes: int, policy: str, words: Sequence[str]) -> Told:
    """Replay it."""
    (settings,) = read_settings([policy], words)
    replay = Replay(trace, read_cluster(f"{nodes}x8"), settings)
    replay.run()
    outcomes = list(replay.outcomes.values())
    guests = [it for it in outcomes if it.job.duration_s <= GUEST_S[1]]
    long = [it for it in outcomes if it.job.duration_s > GUEST_S[1]]
    return Told(
        [it.finish_s - it.job.submit_time_s - it.job.duration_s for it in guests],
        [it.finish_s - it.job.submit_time_s for it in long],
        max(it.finish_s for it in outcomes),
        replay.suspending.count,
        sum(it.preemptions for it in outcomes),
        replay.suspending.thrown,
    )


def costs(size_gb: int, policy: str) -> list[str]:
    """The costs of a save and of a resume, as settings of a replay. `dlq` decides at the ends of
    terms alone, so these are as short as its default.
    """
    each_s, term_s = BASE_S + size_gb / FILE_GB_S, 300 if policy == "dlq" else 900
    return [f"save_s={each_s:g}", f"resume_s={each_s:g}", f"gpu_gb={size_gb}", f"term_s={term_s}"]


def main() -> None:
    """Both ways with each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--guests", type=float, default=0.5)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--philly", default="")
    report = Report.begin("gpu.worth", parser)
    asked = report.options
    traces = _traces(asked)
    report.say(f"{traces[0].path}; {asked.nodes} nodes of 8 GPUs, policy {asked.policy}")
    for size_gb in GPU_GB:
        _row(report, f"{size_gb} GB a GPU", traces, asked, costs(size_gb, asked.policy))
    rows = [Trace.of(one.path, [_unsaving(job) for job in one.jobs]) for one in traces]
    _row(report, "30 GB, long jobs cannot save", rows, asked, costs(30, asked.policy))
    report.end()


def _traces(asked: argparse.Namespace) -> list[Trace]:
    if asked.philly:
        whole = read_trace(asked.philly, skip_bad=True)
        jobs = [job for job in whole.jobs if job.num_gpus <= 8 * asked.nodes][: asked.jobs]
        return [Trace.of(whole.path, jobs)]
    gpus = 8 * asked.nodes
    return [
        mixed(asked.jobs, gpus, asked.guests, asked.load, seed)
        for seed in range(1, asked.seeds + 1)
    ]


def _unsaving(job: TraceJob) -> TraceJob:
    return job if job.duration_s <= GUEST_S[1] else replace(job, checkpoint=False)


def _row(
    report: Report, name: str, traces: list[Trace], asked: argparse.Namespace, words: list[str]
) -> None:
    at_once = [*words, "preempt=at-once"] if asked.policy != "dlq" else words
    with_it = [*words, "preempt=suspend"] if asked.policy != "dlq" else [*words, "suspend=cheaper"]
    for way, settings in ((SAVED, at_once), (SUSPENDED, with_it)):
        runs = [told(trace, asked.nodes, asked.policy, settings) for trace in traces]
        waits = sorted(wait_s for run in runs for wait_s in run.guest_waits_s)
        long = [took_s for run in runs for took_s in run.long_s]
        what = f"{name}, {way}"
        report.figure(f"{what}: mean wait of guests", mean(waits) or 0.0, "s")
        report.figure(f"{what}: 95 of 100 guests wait at most", percentile(waits, 95) or 0.0, "s")
        report.figure(f"{what}: mean time of long jobs", mean(long) or 0.0, "s")
        report.figure(f"{what}: makespan", max(run.makespan_s for run in runs), "s")
        report.figure(f"{what}: preemptions", sum(run.preemptions for run in runs), "")
        report.figure(f"{what}: of them suspensions", sum(run.moves for run in runs), "")
        report.figure(f"{what}: of these thrown back", sum(run.thrown for run in runs), "")


if __name__ == "__main__":
    main()
