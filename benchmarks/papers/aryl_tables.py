"""Aryl's Tables 5 and 12 on a drawn workload of a tenth of the size: the order of the methods, and
ratios.

    python -m benchmarks.papers.aryl_tables [--seeds 3] [--jobs 5039] [--json]

The workload (`aryl_cases`) was fixed before the figures. Every method has the same placement, run
times are known, and an interruption costs a minute. Queueing and completion times are means over
the seeds. The ratio beside the paper's is FIFO's over the method's. The crowded rows came later.
The others had shown that hardly any job is on a lent server when it is asked back. The paper's
servers are used above 93 %. There all jobs take any GPU, and there are 1.35 times as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from benchmarks.papers.aryl_cases import JOBS, SEEDS, cluster, workload
from benchmarks.support.report import Report
from dlq_master.policy.reclaim.choices import RECLAIMS
from dlq_simulator.metrics import Metrics
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings


class Printed(NamedTuple):
    """A row of the paper: mean queueing and completion time, and preemptions over jobs, %."""

    queue_s: float
    jct_s: float
    preempted: float | None = None


FIFO = Printed(3072, 16610)


class Method(NamedTuple):
    """One row: a policy with settings, and the abilities of jobs and clusters."""

    policy: str
    words: tuple[str, ...] = ()
    lends: bool = False
    elastic: float = 0.0
    any_gpu: float = 21.0
    mixed: float = 0.0
    tuned: float = 0.0  # of the elastic jobs, %
    crowd: float = 1.0  # factor for the number of jobs
    paper: Printed | None = None


def _loaning(rule: str, *paper: float) -> Method:
    told = Printed(*paper) if paper else None
    return Method("aryl", (f"reclaim={rule}",), lends=True, paper=told)


def _crowded(rule: str) -> Method:
    return Method("aryl", (f"reclaim={rule}",), lends=True, any_gpu=100, crowd=1.35)


METHODS: Mapping[str, Method] = {
    "Baseline": Method("fifo", ("place=groups",), paper=FIFO),
    "Neither loans nor scaling, Aryl": Method("aryl"),
    "Basic, Aryl": Method("aryl", lends=True, elastic=5, paper=Printed(2008, 11089, 10.20)),
    "Advanced, Aryl": Method(
        "aryl", lends=True, elastic=5, mixed=10, paper=Printed(1833, 10402, 7.05)
    ),
    "Ideal, Aryl": Method(
        "aryl", lends=True, elastic=100, any_gpu=100, paper=Printed(1157, 8874, 5.57)
    ),
    "Loaning, Random": _loaning("random", 2843, 14657, 20.89),
    "Loaning, SCF": _loaning("scf", 2791, 14965, 18.74),
    "Loaning, Aryl": _loaning("aryl", 2204, 12414, 12.34),
    "Loaning, exact": _loaning("exact"),
    "Loaning, Static": _loaning("static", 3649, 18747, 36.75),
    "Loaning, SSF": _loaning("ssf", 2354, 14953, 14.34),
    "Loaning, LSF": _loaning("lsf", 2993, 12953, 28.58),
    **{f"Crowded, {rule}": _crowded(rule) for rule in RECLAIMS},
    "Scaling, Gandiva": Method(
        "gandiva-elastic", ("place=groups",), elastic=5, paper=Printed(3035, 15912)
    ),
    "Scaling, AFS": Method("aryl", ("size=afs",), elastic=5, paper=Printed(2284, 15045)),
    "Scaling, Aryl": Method("aryl", elastic=5, paper=Printed(2275, 12048)),
    "Scaling, rollout": Method("aryl", ("size=rollout",), elastic=5),
    "Scaling, Pollux": Method(
        "pollux", ("place=groups",), elastic=5, tuned=100, paper=Printed(2791, 14534)
    ),
    "Scaling, Aryl+TunedJobs": Method("aryl", elastic=5, tuned=100, paper=Printed(2054, 10229)),
    "Scaling, AFS+TunedJobs": Method("aryl", ("size=afs",), elastic=5, tuned=100),
}
# The methods that the paper has in this order, the best first, and the figure that shows it.
ORDERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Table 5, completion: Ideal, Advanced, Basic, Baseline": (
        ("Ideal, Aryl", "Advanced, Aryl", "Basic, Aryl", "Baseline"),
        "avg_jct_s",
    ),
    "Table 5, completion: loaning and scaling between both": (
        ("Basic, Aryl", "Loaning, Aryl", "Baseline"),
        "avg_jct_s",
    ),
    "Table 5, preemptions: Aryl, SCF, Random": (
        ("Loaning, Aryl", "Loaning, SCF", "Loaning, Random"),
        "reclaim_preemption_ratio",
    ),
    "Table 5, completion by scaling: Aryl, AFS, Gandiva, Baseline": (
        ("Scaling, Aryl", "Scaling, AFS", "Scaling, Gandiva", "Baseline"),
        "avg_jct_s",
    ),
    "Crowded, preemptions: exact, Aryl, SSF, SCF, Random, LSF, Static": (
        tuple(
            f"Crowded, {name}"
            for name in ("exact", "aryl", "ssf", "scf", "random", "lsf", "static")
        ),
        "reclaim_preemption_ratio",
    ),
    "Table 12, preemptions: Aryl, SSF, LSF, Static": (
        ("Loaning, Aryl", "Loaning, SSF", "Loaning, LSF", "Loaning, Static"),
        "reclaim_preemption_ratio",
    ),
}


def main() -> None:
    """Every row, then whether the methods stand in the paper's order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help="of each workload; fewer are quicker"
    )
    report = Report.begin("papers.aryl_tables", parser)
    seeds = SEEDS[: report.options.seeds]
    found: dict[str, list[Metrics]] = {}
    for name, method in METHODS.items():
        found[name] = [replayed(method, seed, report.options.jobs) for seed in seeds]
        tell(report, name, method, found[name], found["Baseline"])
    for name, (methods, figure) in ORDERS.items():
        values = [mean(found[method], figure) for method in methods]
        kept = sum(now <= then for now, then in pairwise(values))
        shown = ", ".join(f"{value:,.4g}" for value in values)
        report.figure(
            f"{name}: pairs in that order", kept, "pairs", at_least=len(values) - 1, note=shown
        )
    report.end()


def replayed(method: Method, seed: int, count: int) -> Metrics:
    """One row on one workload."""
    (settings,) = read_settings([method.policy], method.words)
    shares = (method.elastic, method.any_gpu, method.mixed)
    count = round(count * method.crowd)
    trace = workload(seed, *shares, count=count, tuned=method.tuned)
    return replay(trace, cluster(seed, lends=method.lends), settings).metrics


def tell(
    report: Report, name: str, method: Method, found: Sequence[Metrics], base: Sequence[Metrics]
) -> None:
    """Means over the seeds, beside the paper's."""
    queue, jct = mean(found, "avg_queue_s"), mean(found, "avg_jct_s")
    rows = [
        f"queue {queue:,.0f} / {mean(found, 'median_queue_s'):,.0f} / "
        f"{mean(found, 'p95_queue_s'):,.0f}",
        f"JCT {jct:,.0f} / {mean(found, 'median_jct_s'):,.0f} / {mean(found, 'p95_jct_s'):,.0f}",
    ]
    if method.lends:
        rows.append(
            f"preempted {100 * mean(found, 'reclaim_preemption_ratio'):.2f} %, "
            f"collateral {mean(found, 'reclaim_collateral_damage'):.3f}, "
            f"flexible {100 * mean(found, 'reclaim_flexible_share'):.1f} %"
        )
    rows.append(f"resizes {mean(found, 'resizes'):.0f}")
    report.say(f"{name}: {'; '.join(rows)} (mean / median / p95, s)")
    told = ""
    if method.paper is not None:
        theirs, lost = method.paper, ""
        if theirs.preempted is not None:
            lost = f", preempted {theirs.preempted} %"
        told = (
            f"; the paper {FIFO.jct_s / theirs.jct_s:.2f}, "
            f"queueing {FIFO.queue_s / theirs.queue_s:.2f}{lost}"
        )
    ratio = mean(base, "avg_queue_s") / max(1e-9, queue)
    report.figure(
        f"{name}: completion, FIFO's mean over its own", mean(base, "avg_jct_s") / jct, "x",
        note=f"queueing {ratio:.2f}{told}",
    )  # fmt: skip


def mean(found: Sequence[Metrics], name: str) -> float:
    """The mean over the seeds; a missing value is 0."""
    return fmean(getattr(metrics, name) or 0.0 for metrics in found)


if __name__ == "__main__":
    main()
