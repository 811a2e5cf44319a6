"""Pollux' own workloads as tuned jobs, and Aryl with wrong run times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from benchmarks import ROOT
from benchmarks.papers.aryl_cases import cluster, workload
from benchmarks.papers.aryl_tables import METHODS
from dlq_master.policy.policy import Know
from dlq_simulator.generate.pollux import PolluxJobs
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import TraceJob
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.knowledge import Knowledge

WORKLOAD = "tests/data/traces/pollux/workload-{}.csv"
OFF = 0.25  # Aryl, Table 9: the error of a wrong prediction is at most so large
# Pollux decides each minute, and a job that is given other GPUs stands still for half of one.
_COSTS = ("term_s=60", "save_s=0", "resume_s=30")


def pollux_workload(policy: str, tuned: bool, number: int) -> dict[str, float]:
    """Means in seconds of 160 jobs on 16 nodes of 4 GPUs. Jobs that are not `tuned` keep the GPUs
    and the batch of their rows.
    """
    (settings,) = read_settings([policy], _COSTS)
    trace = read_trace(str(ROOT / WORKLOAD.format(number)), "pollux")
    jobs = PolluxJobs(tuned=tuned).workload(trace)
    found = replay(jobs, read_cluster("16x4"), settings).metrics
    return {
        "jct_s": found.avg_jct_s or 0.0,
        "p95_s": found.p95_jct_s or 0.0,
        "queue_s": found.avg_queue_s or 0.0,
        "resizes": float(found.resizes),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongTimes(Knowledge):
    """Of each job by its name: a share of the run times is wrong, by up to `OFF` either way."""

    wrong: float

    def at_submit(self, row: TraceJob) -> float | None:
        dice = Random(f"wrong:{self.seed}:{row.job_id}")
        if dice.random() >= self.wrong:
            return row.duration_s
        return float(row.duration_s * (1.0 + dice.uniform(-OFF, OFF)))


def wrong_times(method: str, wrong: float, seed: int, jobs: int) -> dict[str, float]:
    """A row of Aryl's tables where a share of the predicted run times is wrong."""
    row = METHODS[method]
    (settings,) = read_settings([row.policy], row.words)
    told = replace(settings, knowledge=WrongTimes(know=Know.KNOWN, seed=seed, wrong=wrong))
    trace = workload(seed, row.elastic, row.any_gpu, row.mixed, count=jobs)
    found = replay(trace, cluster(seed, lends=row.lends), told).metrics
    return {"jct_s": found.avg_jct_s or 0.0, "queue_s": found.avg_queue_s or 0.0}
