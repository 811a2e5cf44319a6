"""A job without GPUs that burns CPU beside a job with a GPU: does it slow the steps down?

    python -m benchmarks.node.cpu_hog [--rounds N] [--json]

Needs root, control groups and two cores: one is the job core, the others are the GPUs'. A step is a
fixed loop of Python. Rounds with and without eight busy processes on the job core alternate; run it
on a quiet host.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.support.living import Living
from benchmarks.support.report import Report

_STEPS = """
import sys, time
with open(sys.argv[1], "a", buffering=1) as told:
    while True:
        began_s, total = time.perf_counter(), 0
        for number in range(400_000):
            total += number * number
        told.write(f"{time.time()} {time.perf_counter() - began_s}\\n")
"""
_BUSY = "for each in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; sleep 6.5"
_LOOK_S, _SETTLE_S = 5.0, 1.2
_AGENT = "[node]\njob_cpus = 1\n"


def main() -> None:
    """Measure each round, and tell the change of the median step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    report = Report.begin("node.cpu_hog", parser)
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    root.chmod(0o755)
    try:
        with Living(root) as living:
            living.run("dlq", "login")
            living.start_agent("n1", "fake:2xH100-80GB", _AGENT)
            changes = _changes(living, root, int(report.options.rounds))
        for number, change in enumerate(changes, start=1):
            report.say(f"round {number}: {change:+.1f} %")
        report.figure("median step beside a CPU hog, of rounds", median(changes), "%", at_most=5.0)
        report.figure("the same, worst round", max(changes), "%", at_most=5.0)
    finally:
        shutil.rmtree(root)
    report.end()


def _changes(living: Living, root: Path, rounds: int) -> list[float]:
    program, told = root / "steps.py", root / "steps"
    program.write_text(_STEPS)
    words = ("--parsable", "-G", "1", "--", "/usr/bin/python3", str(program), str(told))
    steps = living.run("dlq", "submit", *words).strip()
    try:
        return _rounds(living, told, rounds)
    finally:  # it would outlive the daemons
        living.run("dlq", "cancel", "--kill", "--wait", steps)


def _rounds(living: Living, told: Path, rounds: int) -> list[float]:
    time.sleep(_LOOK_S)
    changes = []
    for _ in range(rounds):
        alone_ms = _median_step_ms(told)
        words = ("--parsable", "--cores", "1", "--", "/bin/sh", "-c", _BUSY)
        hog = living.run("dlq", "submit", *words).strip()
        time.sleep(_SETTLE_S)
        beside_ms = _median_step_ms(told)
        living.run("dlq", "wait", hog)
        changes.append(100.0 * (beside_ms / alone_ms - 1.0))
    return changes


def _median_step_ms(told: Path) -> float:
    """Of the steps of the next seconds."""
    from_s = time.time()
    time.sleep(_LOOK_S)
    rows = [line.split() for line in told.read_text().splitlines()[:-1]]
    return 1e3 * median(float(step_s) for at_s, step_s in rows if float(at_s) > from_s)


if __name__ == "__main__":
    main()
