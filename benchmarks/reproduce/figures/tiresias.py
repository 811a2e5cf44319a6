"""Tiresias: completion times as a distribution (Figure 13), and Figures 14 and 15."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.reproduce.case import Done, Table
from benchmarks.reproduce.figures.curves import down
from benchmarks.support.drawing import Plot

RATIOS = ("avg", "median", "p95", "longest")
THRESHOLDS_H = (0.5, 1, 2, 4)
QUEUES = ("(2, 1h)", "(3, 1h, 2h)", "(4, 1h, 2h, 4h)")
KNOBS = (1, 2, 4, 8, 16)
# Section 5.4: 3 and 4 queues improve the average of Tiresias-L by 1 %.
PRINTED_K_OF_L = ((3.0, 0.99), (4.0, 0.99))


def distribution(results: Sequence[Done]) -> list[Plot]:
    """The share of the jobs that have ended after so long, by policy."""
    lines = {
        done.value["name"]: [(x, share) for share, x in done.value["jct_s"]] for done in results
    }
    return [Plot("completion time of a job, s", "share of the jobs", lines, logs="x", steps=True)]


def sensitivity(
    table: Callable[[Sequence[Done]], Table], *, of_l: bool
) -> Callable[[Sequence[Done]], list[Plot]]:
    """Over the threshold, the number of queues and PROMOTEKNOB: three plots."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        y = "completion time over that of (2, 1h)"
        thresholds = {f"(2, {hours:g}h)": float(hours) for hours in THRESHOLDS_H}
        queues = {name: float(at) for at, name in enumerate(QUEUES, start=2)}
        knobs = {f"PROMOTEKNOB {knob}": float(knob) for knob in KNOBS}
        printed = {"paper: avg": PRINTED_K_OF_L} if of_l else {}
        return [
            Plot("threshold of two queues, hours", y, down(rows, RATIOS, thresholds), logs="x"),
            Plot("queues K, number", y, down(rows, RATIOS, queues), printed=printed),
            Plot("PROMOTEKNOB, times", y, down(rows, RATIOS, knobs), logs="x"),
        ]

    return plots
