"""Lists of 10,000 waiting jobs, as the command prints them: table, JSON, and 20 of them.

    python -m benchmarks.commands.lists [--jobs N] [--json]

A real master; 20 of the jobs are on hold. The commands run in this process, where all modules are
imported, as the server of commands runs them; a call opens its connection anew. Printed: the
median wall of RUNS calls, with the CPU of this process and of the master. Goals of issue 21: 150 ms
for the table and for JSON, 40 ms for the 20, and 25 ms of the master's CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.live.submits import SETTINGS, submit_many
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq_cli import main as cli
from dlq_cli.front.server import import_all
from dlq_client.line.identity import load_identity

RUNS = 11
HELD = 20
ASKED = {
    "table": (("status",), 150.0),
    "JSON": (("status", "--json"), 150.0),
    f"filtered to {HELD}": (("status", "-t", "held"), 40.0),
    "squeue": (("slurm", "squeue"), 150.0),
    "squeue of another partition": (("slurm", "squeue", "-p", "few"), 40.0),
}


def main() -> None:
    """Fill, then ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    report = Report.begin("commands.lists", parser)
    import_all()
    with tempfile.TemporaryDirectory() as place, Living(Path(place), SETTINGS) as living:
        os.environ.update(living.environment)
        living.run("dlq", "login")
        identity = load_identity(living.home)
        assert identity is not None
        asyncio.run(submit_many(identity, report.options.jobs, 64))
        living.run("dlq", "hold", f"1-{HELD}")
        for name, (words, goal_ms) in ASKED.items():
            _measure(report, living, name, lambda words=words: _run(words), goal_ms)  # type: ignore[misc] # the words of this round
    report.end()


def _measure(
    report: Report, living: Living, name: str, ask: Callable[[], int], goal_ms: float
) -> None:
    size = ask()
    walls_s, own_s, masters_s = [], time.process_time(), cpu_s(living.master.pid)
    for _ in range(RUNS):
        began_s = time.perf_counter()
        ask()
        walls_s.append(time.perf_counter() - began_s)
    own_ms = 1e3 * (time.process_time() - own_s) / RUNS
    master_ms = 1e3 * (cpu_s(living.master.pid) - masters_s) / RUNS
    report.figure(
        f"{name}, median", 1e3 * median(walls_s), "ms", at_most=goal_ms,
        note=f"CPU: {own_ms:.0f} ms here, {master_ms:.0f} ms of the master; {size:,} bytes",
    )  # fmt: skip


def _run(words: tuple[str, ...]) -> int:
    """Run the command; the size of its output."""
    with tempfile.TemporaryFile() as file:
        text = io.TextIOWrapper(file, encoding="utf-8")
        sys.argv = ["dlq", *words]
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            cli.run(sys.argv[1:])
        text.flush()
        return os.fstat(file.fileno()).st_size


if __name__ == "__main__":
    main()
