"""Many GPUs as one cluster or as several: plans, waits, and the load of each master.

    python -m benchmarks.growth.many_clusters [--gpus 100000] [--clusters 1,2,4]
        [--policy dlq] [--window 600] [--seed 0] [--json]

The same jobs are dealt out in turn to 1, 2 and 4 clusters, which share nothing. The simulator
drives the real core of each master over a window of simulated time. Every cluster is full from the
start, and a tenth of its jobs more wait (`first_wall`). Printed for the busiest cluster: its plans,
and its share of one core with the rest of the master on paper. Printed over all clusters: how long
the jobs of the window have waited, and the GPUs that nobody holds in the end. A split is past the
wall where a master takes one core, or where one plan takes longer than a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from benchmarks.growth.first_wall import (
    GPUS_A_NODE,
    LONGEST_PLAN_MS,
    Costs,
    add_costs,
    costs_of,
    full_from_the_start,
)
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster


class Master(NamedTuple):
    """One cluster over the window."""

    share: float  # of one core, with the rest on paper
    p99_ms: float
    longest_ms: float
    waits_s: Sequence[float]  # of the jobs that came, so far
    unstarted: int  # of these
    held: int  # GPUs in the end


class Split(NamedTuple):
    """The GPUs as so many clusters."""

    gpus: int
    masters: Sequence[Master]

    @property
    def share(self) -> float:
        """That of the busiest master."""
        return max(one.share for one in self.masters)

    @property
    def longest_ms(self) -> float:
        return max(one.longest_ms for one in self.masters)

    @property
    def past_the_wall(self) -> bool:
        return self.share >= 1 or self.longest_ms > LONGEST_PLAN_MS

    @property
    def waits_s(self) -> list[float]:
        return [wait_s for one in self.masters for wait_s in one.waits_s]

    @property
    def idle(self) -> float:
        """The share of all GPUs that nobody holds in the end."""
        return 1 - sum(one.held for one in self.masters) / self.gpus


def dealt(trace: Trace, clusters: int) -> list[Trace]:
    """Its jobs to so many clusters in turn."""
    return [
        Trace.of(f"{trace.path}, cluster {number}", trace.jobs[number::clusters])
        for number in range(clusters)
    ]


def measured(trace: Trace, gpus: int, policy: str, window_s: float, costs: Costs) -> Master:
    """One cluster by the simulator."""
    spec = read_cluster(f"{gpus // GPUS_A_NODE}x{GPUS_A_NODE}")
    run = Replay(trace, spec, read_settings([policy], (), 0)[0])
    run.run(until_s=1)  # the first plan fills the cluster: a master does that once
    plans = len(run.plan_times_s)
    begin_s = time.process_time()
    run.run(until_s=int(window_s))
    core = (time.process_time() - begin_s) / window_s
    took_ms = [1e3 * plan_s for plan_s in run.plan_times_s[plans:]]
    came = [course for course in run.courses.values() if course.row.submit_time_s]
    starts_s = [course.first_start_s for course in came]
    return Master(
        costs.whole(core, len(came) / window_s, gpus // GPUS_A_NODE),
        percentile(took_ms, 0.99),
        max(took_ms),
        [
            (window_s if start_s is None else start_s) - course.row.submit_time_s
            for course, start_s in zip(came, starts_s, strict=True)
        ],
        starts_s.count(None),
        sum(run.cluster.running.gpus_by_priority.values()),
    )


def wall(splits: Iterable[Split]) -> str:
    """The fewest clusters that stand before the wall."""
    for split in splits:
        if not split.past_the_wall:
            return f"{split.gpus:,} GPUs need {len(split.masters)} clusters"
    return "every split is past the wall"


def main() -> None:
    """Measure each split."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--gpus", type=int, default=100_000)
    options.add_argument("--clusters", default="1,2,4", help="numbers of clusters")
    options.add_argument("--policy", default="dlq")
    options.add_argument("--window", type=float, default=600.0, help="simulated seconds")
    options.add_argument("--seed", type=int, default=0)
    add_costs(options)
    report = Report.begin("growth.many_clusters", options)
    chosen = report.options
    trace = full_from_the_start(chosen.gpus, chosen.window, chosen.seed)
    splits = []
    for clusters in map(int, chosen.clusters.split(",")):
        each = chosen.gpus // clusters
        split = Split(
            each * clusters,
            [
                measured(part, each, chosen.policy, chosen.window, costs_of(chosen))
                for part in dealt(trace, clusters)
            ],
        )
        splits.append(split)
        _tell(report, split)
    report.say(wall(splits))
    report.end()


def _tell(report: Report, split: Split) -> None:
    name = f"{len(split.masters)} x {split.gpus // len(split.masters):,} GPUs"
    unstarted = sum(one.unstarted for one in split.masters)
    report.figure(f"{name}: busiest master, of one core", split.share, "", at_most=1.0)
    report.figure(
        f"{name}: longest plan", split.longest_ms, "ms", at_most=LONGEST_PLAN_MS,
        note=f"p99 {max(one.p99_ms for one in split.masters):.1f} ms",
    )  # fmt: skip
    report.figure(
        f"{name}: wait of the jobs that came, mean", mean(split.waits_s), "s",
        note=f"{len(split.waits_s)} jobs, p99 {percentile(split.waits_s, 0.99):.0f} s; "
        f"{unstarted} have not started; {100 * split.idle:.2f} % of the GPUs are idle",
    )  # fmt: skip


if __name__ == "__main__":
    main()
