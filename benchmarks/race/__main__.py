"""dlq beside a real Slurm on this machine, line by line: `make race`.

    python -m benchmarks.race [LINE...] [--repeat N] [--short | --full] [--json]
        [--page]

Root, and Debian's slurm-wlm, munge and libslurm-dev. Both clusters stand side by side on loopback,
and every line is measured in pairs: Slurm's turn, then dlq's, then the other way round. CPU is that
of all processes of the side, by /proc. Where other work took too much of the cores in a turn, its
pair does not count; with too few pairs there is no ratio.

The line "hyperqueue" puts HyperQueue in Slurm's place, if `pip install hyperqueue` has been done.

`--page` writes docs/internals/race.md, and its pictures where matplotlib is there.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import time
from collections.abc import Callable

from benchmarks.race import machine
from benchmarks.race.lines import (
    alone,
    calls,
    dispatch,
    full_cluster,
    hyperqueue,
    long_queue,
    submits,
)
from benchmarks.race.page import write_page
from benchmarks.race.running import Race
from benchmarks.race.slurm_side import missing_for_clients
from benchmarks.race.table import text_table
from benchmarks.support.report import Report
from support.real_slurm import missing

# In this order: lines that want the same clusters follow each other.
LINES: dict[str, Callable[[Race], None]] = {
    "round-trip": calls.run_round_trip,
    "commands": calls.run,
    "first-call": calls.run_first_call,
    "submit-loop": submits.run_loop,
    "submits": submits.run,
    "memory": long_queue.run_memory,
    "lists": long_queue.run_lists,
    "restart": long_queue.run_restart,
    "full-cluster": full_cluster.run,
    "dispatch": dispatch.run,
    "hyperqueue": hyperqueue.run,
    "alone": alone.run,
}


def main() -> None:
    """Run the named lines, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("line", nargs="*", metavar="LINE", help=", ".join(LINES))
    parser.add_argument("--repeat", type=int, default=5, help="pairs of each row")
    parser.add_argument("--short", action="store_true", help="fewer operations: seven minutes")
    parser.add_argument("--full", action="store_true", help="also 10,000 nodes, 1,000,000 jobs")
    parser.add_argument("--page", action="store_true", help="write the page of the documentation")
    report = Report.begin("race", parser)
    asked = report.options.line or list(LINES)
    if unknown := [name for name in asked if name not in LINES]:
        sys.exit(f"there is no line {unknown[0]!r}; there are: {', '.join(LINES)}")
    if lack := missing() or missing_for_clients():
        sys.exit(f"the race needs a real Slurm: {lack}")
    machine.adopt_orphans()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    race = Race(report, report.options.repeat, report.options.short, report.options.full)
    try:
        for name in (name for name in LINES if name in asked):
            _run(race, name)
    finally:
        race.close()
        machine.end_all()
    report.say("\n" + text_table(race.rows))
    report.details["rows"] = [row.facts() for row in race.rows]
    if report.options.page:
        write_page(report.conditions, race.rows, race.repeat, race.short)
    report.end()
    if race.failed:
        sys.exit(f"failed: {', '.join(race.failed)}")


def _run(race: Race, name: str) -> None:
    race.line = name
    race.report.say(f"\n{name}")
    begin_s = time.monotonic()
    try:
        LINES[name](race)
    except Exception as error:  # noqa: BLE001 - the other lines are measured
        race.failed.append(name)
        race.report.say(f"  failed: {type(error).__name__}: {error}")
        race.close()
    race.report.say(f"  ({time.monotonic() - begin_s:.0f} s)")


if __name__ == "__main__":
    main()
