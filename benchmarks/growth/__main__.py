"""How the cost of each operation of the master grows: one curve for each, over four sizes.

    python -m benchmarks.growth [--only nodes waiting shapes agents] [--policy NAME ...]
        [--operation NAME ...] [--full] [--page] [--json]

A master of the wanted size (`tests/support/grown_master.py`) turns in this process: full nodes,
three users, a deep queue. Each operation is one turn. Its cost is the median CPU time of this
thread, without the store (a real master writes in another thread). A restart is one load of
everything. Sizes that take longer than a minute to set up come with `--full` alone. Goal: the slope
of each curve, on logarithmic axes, is at most the one beside it. `--page` writes
docs/internals/growth.md.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.growth.curves import Curve, Point, text_table
from benchmarks.growth.page import write_page
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.clock import SteadyClock
from dlq_common.daemon.logs import configure_logging
from dlq_master.policy.registry.presets import PRESETS
from support.grown_master import GrownMaster

TIMES = 25
FLAT, LINEAR = 0.15, 1.1
# Policies that compare all jobs again in each plan: waiting jobs, as their order changes with every
# instant, or running jobs, as their sizes do. Policies that grow jobs look at all lines.
AGAIN = {
    "waiting": ("3sigma", "themis"),
    "nodes": ("afs",),
    "shapes": ("afs", "aryl", "gandiva-elastic"),
}
PLANNED_ELSEWHERE = ("chronus", "chronus-paper")  # in slots, by the planner: `live.slo_cycle`
MEASURED = [
    name
    for name, preset in PRESETS.items()
    if name not in PLANNED_ELSEWHERE and not preset.simulated
]
ONCE = "restart"  # the last operation of a master: its agents are gone


class Over(NamedTuple):
    """One measure of size: its values, those that take long, and the slope of each operation."""

    nodes: int
    waiting: int
    sizes: Sequence[int]
    long_sizes: Sequence[int]
    most: dict[str, float]


OVER = {
    "nodes": Over(
        0, 1_000, (10, 100, 1_000), (10_000,),
        {"submit": FLAT, "completion": FLAT, "why": LINEAR, "page": LINEAR, "join": FLAT},
    ),
    "waiting": Over(
        100, 0, (100, 1_000, 10_000), (100_000, 1_000_000),
        {"submit": FLAT, "completion": FLAT, "why": FLAT, "page": FLAT, ONCE: LINEAR},
    ),
    "shapes": Over(
        120, 10_000, (1, 10, 100, 1_000), (10_000,),
        {"submit": FLAT, "completion": FLAT, "why": LINEAR},
    ),
    "agents": Over(
        0, 0, (1, 10, 100, 1_000), (5_000, 10_000),
        {"beat": FLAT, "leases": LINEAR, "join": FLAT},
    ),
}  # fmt: skip


def main() -> None:
    """Measure, and tell each curve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=OVER, default=[*OVER])
    parser.add_argument("--operation", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--policy", nargs="+", choices=MEASURED, default=["dlq"])
    parser.add_argument("--full", action="store_true", help="sizes of more than a minute too")
    parser.add_argument("--most", type=int, default=0, help="leave out sizes beyond this")
    parser.add_argument("--page", action="store_true", help="write docs/internals/growth.md")
    report = Report.begin("growth", parser)
    chosen = report.options
    configure_logging(SteadyClock(), stream=io.StringIO(), as_json=True)
    curves: list[Curve] = []
    for policy in chosen.policy:
        for name in chosen.only:
            over = OVER[name]
            sizes = [*over.sizes, *(over.long_sizes if chosen.full else ())]
            kept = [size for size in sizes if not chosen.most or size <= chosen.most]
            curves += measured(policy, name, kept, chosen.operation)
    report.say(text_table(curves))
    for curve in curves:
        if curve.slope is not None:
            report.figure(curve.name, curve.slope, "slope", at_most=curve.most)
    report.details["curves"] = [curve.facts() for curve in curves]
    if chosen.page:
        write_page(report.conditions, curves)
    report.end()


def measured(policy: str, name: str, sizes: Sequence[int], only: Sequence[str] = ()) -> list[Curve]:
    """The curves of one policy over one measure of size; no more operations than in `only`."""
    over = OVER[name]
    operations = [each for each in over.most if not only or each in only]
    found: dict[str, list[Point]] = {each: [] for each in operations}
    for size in sizes:
        begin_s = time.monotonic()
        wanted = {"nodes": over.nodes, "waiting": over.waiting}
        wanted["nodes" if name == "agents" else name] = size
        master = GrownMaster(policy, **wanted)
        built_s = time.monotonic() - begin_s
        for operation in operations:
            found[operation].append(Point(size, cost_us(master, operation)))
        master.close()
        told = "  ".join(f"{each} {points[-1].cost_us:,.0f}" for each, points in found.items())
        _progress(f"{policy}, {size:,} {name} (made in {built_s:.0f} s), us: {told}")
    return [
        Curve(each, name, policy, most_slope(policy, name, each), points)
        for each, points in found.items()
    ]


def most_slope(policy: str, over: str, operation: str) -> float:
    """The slope that this curve may have."""
    if policy in AGAIN.get(over, ()) and operation in ("submit", "completion", "why"):
        return LINEAR
    return OVER[over].most[operation]


def cost_us(master: GrownMaster, operation: str) -> float:
    """The median CPU time of an operation."""
    gc.collect()
    gc.freeze()  # as the daemon does once it has loaded
    took_s = []
    for _ in range(1 if operation == ONCE else TIMES):
        act = getattr(master, operation)()
        begin_s, store_s = time.thread_time(), master.store.used_s
        act()
        took_s.append(time.thread_time() - begin_s - (master.store.used_s - store_s))
        if operation != ONCE:
            master.obey()
    gc.unfreeze()
    return 1e6 * percentile(took_s, 0.5)


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
