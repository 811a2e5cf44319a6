"""Chronus' own workloads over Philly's jobs: P_SLO, P_MIX1 and P_MIX2 of its table 1.

    python -m benchmarks.papers.chronus.released --slo FILE --mix2 FILE [--cluster 120x8]
        [--policy NAME]... [--first DAY] [--last DAY]

The authors released P_SLO and P_MIX2, and no P_MIX1. Its mix is 70 % strict and 30 % best-effort
jobs over the same jobs. So here three in ten jobs of P_SLO lose their deadlines, drawn by chance.
Every twentieth row by time is in `tests/data/traces/chronus`, for a twentieth of the paper's 960
GPUs. The command replays the whole files.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks import ROOT
from benchmarks.papers.chronus.sweeps import REFUSED, SOFT, STRICT, Figures, missed
from benchmarks.support.report import Report
from dlq_simulator.generate.chronus import MIXES
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, read_cluster

WORKLOADS = ("P_SLO", "P_MIX1", "P_MIX2")
FOLDER = "tests/data/traces/chronus"
SLO_FILE = f"{FOLDER}/philly_SLO_every_20th.csv"
MIX2_FILE = f"{FOLDER}/philly_MIX2_every_20th.csv"
THINNED = "6x8"  # a twentieth of 960 GPUs
MIX1_SEED = 7701  # written down before any result
DAY_S = 86_400.0
DAYS = 15.0
POLICIES = (
    "chronus", "chronus-paper", "edf", "edf-preemptive", "3sigma", "genie", "yarn-cs",
    "tiresias-las", "themis", "srtf",
)  # fmt: skip


def main() -> None:
    """A line for each workload and policy."""
    report = Report.begin("papers.chronus.released", _options())
    asked = report.options
    cluster = read_cluster(asked.cluster)
    for name in WORKLOADS:
        trace = _of(name, asked.slo, asked.mix2, asked.first, asked.last)
        for policy in asked.policy or POLICIES:
            found = figures(trace, cluster, policy, asked.set or [])
            told = ", ".join(f"{word} {value:.4g}" for word, value in found.items() if value)
            report.say(f"{name} {policy}: {told}")
    report.end()


def thinned(
    workload: str, policy: str, settings: Sequence[str], first: float, last: float
) -> Figures:
    """A policy on the rows in the repository that arrive between these days (a case's part)."""
    trace = _of(workload, str(ROOT / SLO_FILE), str(ROOT / MIX2_FILE), first, last)
    return figures(trace, read_cluster(THINNED), policy, settings)


def figures(trace: Trace, cluster: ClusterSpec, policy: str, settings: Sequence[str]) -> Figures:
    """The misses, and the best-effort jobs' completion in hours."""
    (chosen,) = read_settings([policy], list(settings), 0)
    result = replay(trace, cluster, chosen)
    found = result.metrics
    slo = [one for one in result.outcomes if one.job.deadline_s is not None or one.job.soft_steps]
    be_s = found.be_avg_jct_s
    return {
        "jobs": found.jobs,
        "wdmr": found.wdmr,
        STRICT: missed(one for one in slo if not one.job.soft_steps),
        SOFT: missed(one for one in slo if one.job.soft_steps),
        REFUSED: missed(one for one in slo if one.promised_s is None),
        "be_jct_h": None if be_s is None else be_s / 3600.0,
        "guaranteed": found.guaranteed,
        "promises_missed": found.promises_missed,
    }


def mix1(slo: Trace, seed: int = MIX1_SEED) -> Trace:
    """P_MIX1 from P_SLO: jobs drawn by chance have no deadline."""
    rows = [*slo.jobs]
    count = round(len(rows) * MIXES["mix1"].best_effort / 100)
    drawn = frozenset(random.Random(seed).sample(range(len(rows)), count))
    return Trace.of(
        f"{slo.path} as P_MIX1",
        [
            replace(row, kind="be", deadline_s=None, soft_steps=()) if at in drawn else row
            for at, row in enumerate(rows)
        ],
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _of(workload: str, slo: str, mix2: str, first: float, last: float) -> Trace:
    whole = read_trace(mix2 if workload == "P_MIX2" else slo, "auto", skip_bad=True)
    made = mix1(whole) if workload == "P_MIX1" else whole
    there = [row for row in made.jobs if first * DAY_S <= row.submit_time_s < last * DAY_S]
    return Trace.of(made.path, there)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--slo", default=str(ROOT / SLO_FILE))
    parser.add_argument("--mix2", default=str(ROOT / MIX2_FILE))
    parser.add_argument("--cluster", default=THINNED)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE")
    parser.add_argument("--first", type=float, default=0.0, help="the day from which jobs arrive")
    parser.add_argument("--last", type=float, default=DAYS, help="the day until which they do")
    return parser


if __name__ == "__main__":
    main()
