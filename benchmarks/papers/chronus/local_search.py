"""Chronus' figure 8b: placements of best-effort jobs, by the prices of being spread and of a stop.

    python -m benchmarks.papers.chronus.local_search [--full] [--json]

The workload has many widths that do not fill nodes, as in the paper's section 5.3, on 16 nodes of
8. The paper has local search ahead of consolidation. The released program of the authors charges
nothing for spread GPUs (`compute_progress` is 1). It also charges no stop to a job that runs before
and after a cycle, wherever. Four price lists show which of these decides. Figures are the mean JCT
in seconds over the seeds: one of 400 jobs, or six of 600 with `--full`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from benchmarks.support.report import Report
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup

SEEDS = (0, 1, 2, 3, 4, 5)
JOBS, FULL_JOBS = 400, 600
GAP_S = 90.0
WIDTHS = {1: 16, 2: 18, 3: 12, 4: 18, 5: 7, 6: 8, 7: 5, 8: 10, 12: 2, 16: 3, 20: 1}
RHOS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
CLUSTER = ClusterSpec(name="16x8", groups=(NodeGroup(count=16, gpus=8),))

PLACEMENTS: Mapping[str, tuple[str, ...]] = {
    "consolidation": ("place=consolidate",),
    "quasi-consolidation": ("search=1", "rearrange=off"),
    "local search, running jobs stay": ("rearrange=off",),
    "local search": ("rearrange=cycle",),
}
_FREE_STOPS = ("save_s=0", "resume_s=0")
PRICES: Mapping[str, tuple[str, ...]] = {
    "all charged": (),
    "spreading is free": ("slowdown=free",),
    "stops are free": _FREE_STOPS,
    "both are free": ("slowdown=free", *_FREE_STOPS),
}


class LocalSearchRow(NamedTuple):
    """One placement under one price list: the mean JCT, and the mean number of preemptions."""

    placement: str
    price: str
    jct_s: float
    preemptions: float


def main() -> None:
    """A table of mean JCTs, and local search over consolidation."""
    report = Report.begin("papers.chronus.local_search", _options())
    full = report.options.full
    rows = list(ran(SEEDS if full else SEEDS[:1], FULL_JOBS if full else JOBS))
    report.say("\n" + table(rows))
    jct_s = {(row.placement, row.price): row.jct_s for row in rows}
    for price in PRICES:
        share = jct_s["local search", price] / jct_s["consolidation", price]
        report.figure(f"{price}: mean JCT of local search over consolidation", share, "x")
    report.end()


def ran(seeds: Sequence[int], jobs: int) -> Iterable[LocalSearchRow]:
    """Every placement under every price list."""
    for placement in PLACEMENTS:
        for price in PRICES:
            found = [placed(placement, price, seed, jobs) for seed in seeds]
            yield LocalSearchRow(
                placement,
                price,
                mean(one["jct_s"] for one in found),
                mean(one["preemptions"] for one in found),
            )


def placed(placement: str, price: str, seed: int, jobs: int) -> dict[str, float]:
    """One replay: its mean JCT and preemptions."""
    (chosen,) = read_settings(["chronus-paper"], [*PLACEMENTS[placement], *PRICES[price]])
    found = replay(hostile(seed, jobs), CLUSTER, chosen).metrics
    return {"jct_s": float(found.avg_jct_s or 0.0), "preemptions": float(found.preemptions)}


def hostile(seed: int, jobs: int) -> Trace:
    """Best-effort jobs of many widths, at a load of 0.96 on average over six seeds."""
    dice, told = random.Random(seed), random.Random(seed + 1)
    now_s, rows = 0.0, []
    for number in range(jobs):
        now_s += dice.expovariate(1 / GAP_S)
        (gpus,) = dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()))
        duration_s = min(14_400.0, max(60.0, dice.lognormvariate(7.2, 1.2)))
        dice.choice(RHOS)
        rows.append(
            TraceJob(
                job_id=str(number),
                submit_time_s=now_s,
                num_gpus=gpus,
                duration_s=duration_s,
                rho=told.choice(RHOS),
            )
        )
    return Trace.of("hostile", rows)


def table(rows: Sequence[LocalSearchRow]) -> str:
    """Placements down, price lists across, as markdown; in brackets the preemptions."""
    lines = [
        "| mean JCT in s (preemptions) | " + " | ".join(PRICES) + " |",
        "|---|" + "---|" * len(PRICES),
    ]
    for placement in PLACEMENTS:
        mine = [row for row in rows if row.placement == placement]
        cells = [f"{row.jct_s:,.0f} ({row.preemptions:,.0f})" for row in mine]
        lines.append(f"| {placement} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="six seeds of 600 jobs")
    return parser


if __name__ == "__main__":
    main()
