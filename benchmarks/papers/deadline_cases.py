"""Workloads with deadlines for whole replays, and the seeds they are drawn from.

The seeds were written down before any result: nothing was tuned on another choice of them.

A base is drawn like the sets of `slo_jobs`: heavy-tailed run times from 5 minutes to 3 days and
mostly narrow jobs, as Philly's are. Arrivals are random with a wave of a day, as the paper's figure
5b shows for Philly. Its span is such that its work is `LOAD` times the cluster's capacity in it.
The workloads that the authors released offer 1.14 to 1.18 at 100 %. Deadlines, mixes and densities
are the paper's (sections 4.1 and 5.4), by the generator of `dlq simulate generate chronus`.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import NamedTuple

from benchmarks.papers import slo_jobs
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup

SEEDS = (7501, 7502, 7503)
MIX_NAMES = ("slo", "mix1", "mix2")
DENSITIES = (80, 100, 120, 140, 160)
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4)  # standard deviations of estimates
NOISE_MIX, NOISE_DENSITY = "mix2", 120

LOAD = 1.15  # at 100 %
NODES, NODE_GPUS = 12, 8
HOSTILE = (3, 5, 6, 7)  # widths that are rounded up, as Chronus calls them
JOBS, QUICK_JOBS = 600, 150  # at 100 %
WAVE = 0.6  # the busiest hour has 1 + this, the calmest 1 - this, times the mean of arrivals
DAY_S = 86_400.0


class Case(NamedTuple):
    """One workload of the comparison; `load` is its work over the cluster's capacity while jobs
    arrive.
    """

    trace: Trace
    load: float


def cluster() -> ClusterSpec:
    """The one that all cases run on."""
    return ClusterSpec(
        name=f"{NODES}x{NODE_GPUS}",
        groups=(NodeGroup(count=NODES, gpus=NODE_GPUS),),
        typed=False,
    )


def case(
    mix: str, density: int, seed: int, jobs: int = JOBS, hostile: float = 0.0, elastic: bool = False
) -> Case:
    """The same base for all mixes and densities of a seed. `hostile`: the share of jobs whose GPUs
    do not fill halves of a node; the work of each job stays the same. `elastic`: each job runs on
    half to twice the GPUs that it asks for.
    """
    base, span_s = _base(seed, jobs)
    if hostile:
        base = _with_hostile(base, hostile, seed)
    chosen = Chronus(mix=MIXES[mix], density=density)
    trace = chosen.workload(random.Random(f"{seed}:{mix}:{density}"), base)
    if elastic:
        trace = Trace.of(trace.path, [_stretched(row) for row in trace.jobs])
    return Case(trace, _work(trace) / (NODES * NODE_GPUS * span_s))


def _base(seed: int, count: int) -> tuple[Trace, float]:
    """Jobs without deadlines, and the seconds in which they arrive."""
    draw = random.Random(seed)
    drawn = [slo_jobs.draw_one(draw, slo_jobs.width(draw.random(), 0.0)) for _ in range(count)]
    work = sum(job.gpus * round(job.runtime_s) for job in drawn)
    span_s = work / (NODES * NODE_GPUS * LOAD)
    arrivals = sorted(_arrival_s(draw, span_s) for _ in drawn)
    rows = [
        TraceJob(
            job_id=str(number),
            submit_time_s=round(at_s),
            num_gpus=job.gpus,
            duration_s=round(job.runtime_s),
        )
        for number, (at_s, job) in enumerate(zip(arrivals, drawn, strict=True))
    ]
    return Trace.of(f"seed {seed}", rows), span_s


def _with_hostile(base: Trace, share: float, seed: int) -> Trace:
    draw, rows = random.Random(f"{seed}:hostile"), []
    for row in base.jobs:
        met, gpus = draw.random() < share, draw.choice(HOSTILE)
        if met:
            run_s = max(1.0, round(row.duration_s * row.num_gpus / gpus))
            row = replace(row, num_gpus=gpus, duration_s=run_s)
        rows.append(row)
    return Trace.of(base.path, rows)


def _stretched(row: TraceJob) -> TraceJob:
    each = NODE_GPUS if row.num_gpus % NODE_GPUS == 0 else 1
    workers = row.num_gpus // each
    return replace(
        row, gpus_per_worker=each, min_workers=max(1, workers // 2), max_workers=2 * workers
    )


def _arrival_s(draw: random.Random, span_s: float) -> float:
    """An instant of the span, likelier by day than by night."""
    while True:
        at_s = draw.uniform(0.0, span_s)
        rate = 1.0 + WAVE * math.sin(2.0 * math.pi * at_s / DAY_S)
        if draw.uniform(0.0, 1.0 + WAVE) < rate:
            return at_s


def _work(trace: Trace) -> float:
    """GPU-seconds."""
    return sum(job.num_gpus * job.duration_s for job in trace.jobs)
