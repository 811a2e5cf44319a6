"""Tiresias' Table 5 with Gandiva, and its Figures 14 and 15: thresholds, K and PROMOTEKNOB.

    python -m benchmarks.papers.tiresias_tables [--short] [--ideal] [--trace FILE --cluster SPEC] [--json]

The workloads are those of its section 5.1, drawn from three seeds that were fixed before; `--short`
replays the first. `--trace` takes one trace instead. A preemption costs a minute and takes place at
boundaries; `--ideal` counts GPUs and takes them at any event and at no cost, as its simulator does.
Gittins knows the services of the very jobs that it orders, as in the paper. Each figure is the mean
over the seeds of a ratio to Tiresias-L: with (2, 0.9h) in Table 5, with (2, 1h) in the figures.
"""  # noqa: E501

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import NamedTuple

from benchmarks.support.report import Report
from dlq_master.policy.registry.registry import build
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.metrics import percentile
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import ReplaySettings, read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster

SEEDS = (51, 4801, 4802)
CLUSTER = "15x4"
HOUR_GPU_S = 3600.0
IDEAL = ("place=count", "preempt=free")
L, G = "tiresias-las", "tiresias-gittins"
FIGURES = ("avg", "median", "p95", "longest")


class Row(NamedTuple):
    """A policy with settings; `paper`: its average, median and 95th percentile over L's."""

    policy: str
    words: tuple[str, ...] = ()
    paper: tuple[float, ...] = ()


def queues(*hours: float) -> str:
    """`(2, 1h)` of the paper as a setting."""
    return f"thresholds={','.join(f'{hour * HOUR_GPU_S:g}' for hour in hours)}"


TABLE_5: Mapping[str, Row] = {
    "Tiresias-L": Row(L),
    "YARN-CS": Row("fifo", (), (2.41, 30.85, 1.25)),
    "Best-effort": Row("best-effort", (), (1.50, 9.03, 1.08)),
    "SRTF": Row("srtf", (), (1.00, 1.00, 0.84)),
    "Gandiva": Row("gandiva", (), (2.00, 2.59, 2.08)),
    "Tiresias-G": Row(G, (), (0.97, 1.00, 0.85)),
}
LEVELS = {"(3, 1h, 2h)": queues(1, 2), "(4, 1h, 2h, 4h)": queues(1, 2, 4)}


def sensitivity(policy: str) -> Iterator[tuple[str, Row]]:
    """The bars of Figure 14 (L) or 15 (G); the first is what the others are compared with."""
    for hours in (1, 0.5, 2, 4):
        yield f"(2, {hours:g}h)", Row(policy, (queues(hours),))
    for name, words in LEVELS.items():
        yield name, Row(policy, (words,))
    for knob in (1, 2, 4, 8, 16):
        yield f"PROMOTEKNOB {knob}", Row(policy, (queues(1), f"promote_knob={knob}"))


class Found(NamedTuple):
    """Completion times of one replay, in seconds, and its preemptions."""

    avg: float
    median: float
    p95: float
    longest: float
    preemptions: int


def main() -> None:
    """Table 5, then both figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help="the first seed alone")
    parser.add_argument("--ideal", action="store_true", help="preemption is free, GPUs are counted")
    parser.add_argument("--trace", help="a trace instead of the drawn ones")
    parser.add_argument("--cluster", default=CLUSTER)
    report = Report.begin("papers.tiresias_tables", parser)
    options = report.options
    seeds: Sequence[int | str] = [options.trace] if options.trace else SEEDS
    if options.short:
        seeds = seeds[:1]
    common = IDEAL if options.ideal else ()
    for title, rows in (
        ("Table 5", TABLE_5),
        ("Figure 14, Tiresias-L", dict(sensitivity(L))),
        ("Figure 15, Tiresias-G", dict(sensitivity(G))),
    ):
        base: list[Found] = []
        for name, row in rows.items():
            found = [
                run(seed, row.policy, (*row.words, *common), options.cluster) for seed in seeds
            ]
            base = base or found
            tell(report, f"{title}: {name}", row, found, base)
    report.end()


def run(seed: int | str, policy: str, words: Sequence[str], cluster: str = CLUSTER) -> Found:
    """One replay of a drawn workload, or of the trace of that name."""
    trace = Tiresias().workload(Random(seed)) if isinstance(seed, int) else read_trace(seed)
    result = replay(trace, read_cluster(cluster), settings_of(policy, words, trace))
    times_s = [float(outcome.jct_s) for outcome in result.outcomes]
    return Found(
        fmean(times_s),
        percentile(times_s, 50) or 0.0,
        percentile(times_s, 95) or 0.0,
        max(times_s),
        result.metrics.preemptions,
    )


def settings_of(policy: str, words: Sequence[str], trace: Trace) -> ReplaySettings:
    """Words that the policy does not know are left out; Gittins gets the services of the trace."""
    known = [word for word in words if policy != "gandiva" or not word.startswith("preempt=")]
    if policy == "gandiva" and len(known) < len(words):
        known.append("resume_s=0")
    (chosen,) = read_settings([policy], known)
    if policy != G:
        return chosen
    services = [float(job.num_gpus * job.duration_s) for job in trace.jobs]
    return replace(chosen, policy=build(policy, chosen.policy.settings, services))


def tell(
    report: Report, name: str, row: Row, found: Sequence[Found], base: Sequence[Found]
) -> None:
    """Ratios to the first row, beside the paper's."""
    ratios = {
        figure: fmean(
            getattr(one, figure) / getattr(other, figure)
            for one, other in zip(found, base, strict=True)
        )
        for figure in FIGURES
    }
    shown = "/".join(f"{ratios[figure]:.2f}" for figure in FIGURES)
    note = f"avg/median/p95/longest {shown}; {fmean(one.preemptions for one in found):.0f} stops"
    if row.paper:
        note += f"; the paper {'/'.join(f'{value:.2f}' for value in row.paper)}"
    report.figure(f"{name}, average over that of L", ratios["avg"], "x", note=note)


if __name__ == "__main__":
    main()
