"""All benchmarks, one after another, each with its conditions: `make bench`.

    python -m benchmarks.run [NAME...] [--json]

The longest run only by name. Ends with one table of every figure that has a goal. The exit code
says whether each of them ran; a goal that is missed is a figure to look at, not a failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any, TextIO

from benchmarks import ROOT
from benchmarks.support.conditions import conditions, conditions_line
from benchmarks.support.report import SCHEMA, summary

FOLDER = ROOT / "benchmarks"
NO_COMMANDS = ("support", "run")


def _commands() -> list[str]:
    """Every module below this folder that makes a report: `ROOM.NAME`, or `ROOM`."""
    files = [path for path in sorted(FOLDER.rglob("*.py")) if "Report.begin(" in path.read_text()]
    parts = [path.relative_to(FOLDER).with_suffix("").parts for path in files]
    return [
        ".".join(each).removesuffix(".__main__") for each in parts if each[0] not in NO_COMMANDS
    ]


NAMES = _commands()
# Whole tables of papers, and Slurm beside dlq: they take from ten minutes to hours. Two need the
# environment of `make browser`, one needs PostgreSQL, and one a package index.
ONLY_BY_NAME = (
    "race", "papers.vm_allocation", "papers.aryl_tables",
    "papers.deadlines", "papers.matrix", "profiler.unseen_run_times", "commands.lanes_frames",
    "commands.screen", "store.pair", "commands.first_job",
)  # fmt: skip


def main() -> None:
    """Run the named ones, or all but the longest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="all reports as one object on stdout")
    options = parser.parse_args()
    if unknown := [name for name in options.name if name not in NAMES]:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(NAMES)}")
    out = sys.stderr if options.json else sys.stdout
    before = conditions()
    reports, failed = [], []
    for name in options.name or [name for name in NAMES if name not in ONLY_BY_NAME]:
        print(f"\n=== {name}", file=out, flush=True)
        report = run(name, out)
        if report is None:
            failed.append(name)
        else:
            reports.append(report)
    print(f"\n{conditions_line(before)}\n{summary(reports)}", file=out, flush=True)
    if options.json:
        print(json.dumps({"schema": SCHEMA, "reports": reports, "failed": failed}))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(name: str, out: TextIO) -> dict[str, Any] | None:
    """The report of one benchmark, its text going to `out` as it comes; None when it failed."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--json"],
        cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=out,
    )  # fmt: skip
    if done.returncode:
        return None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


if __name__ == "__main__":
    main()
