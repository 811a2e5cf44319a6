"""From nothing to the first job, as a new user without root goes.

A fresh environment gets `dlq[all]` by pip, from the wheel of this commit. `dlq up` starts with two
virtual GPUs, and a job runs to its end.

    PYTHONPATH=tests python -m benchmarks.commands.first_job [--wheel FILE] [--runs N] [--json]

Goal: less than five minutes. It needs a package index, and its first download counts. As root it
makes an account and goes as that one; else it goes as its caller.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from benchmarks import ROOT
from benchmarks.support.report import Report
from support.first_job_trial import GOAL_S, UNTIL, timed


def main() -> None:
    """Go the whole way `--runs` times, each in an empty home."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="this one; else it is built first, untimed")
    parser.add_argument("--runs", type=int, default=1)
    report = Report.begin("commands.first_job", parser)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = report.options.wheel or _built(Path(scratch))
        for run in range(report.options.runs):
            took_s = timed(wheel)
            word = f", run {run + 1}" if report.options.runs > 1 else ""
            for step, seconds in took_s.items():
                if step in UNTIL:
                    report.figure(f"{step}{word}", seconds, "s")
            until_s = sum(took_s[step] for step in UNTIL)
            report.figure(f"until the first job{word}", until_s, "s", at_most=GOAL_S)
    report.end()


def _built(out: Path) -> Path:
    """The wheel of this tree."""
    uv = ROOT / "build" / "uv" / "bin" / "uv"
    command = [str(uv), "build", "--quiet", "--wheel", "--out-dir", str(out), str(ROOT)]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


if __name__ == "__main__":
    main()
