"""`dlq status --json` of many waiting jobs: the whole command, as a user waits for it.

    python -m benchmarks.commands.status [--jobs N] [--json]

Goal: 5,000 jobs in less than a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from benchmarks.live.submits import SETTINGS, submit_many
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_client.line.identity import load_identity

RUNS = 5


def main() -> None:
    """Submit, then list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    report = Report.begin("commands.status", parser)
    jobs = report.options.jobs
    with tempfile.TemporaryDirectory() as place, Living(Path(place), SETTINGS) as living:
        # A node that takes no work: every job waits, and the list says why for each.
        living.start_agent("n1", "fake:8xH100-80GB")
        living.run("dlq", "admin", "node", "drain", "n1", "--reason", "benchmark", "-y")
        identity = load_identity(living.home)
        assert identity is not None
        asyncio.run(submit_many(identity, jobs, 64))
        took, text = [], ""
        for _ in range(RUNS):
            start_s = time.perf_counter()
            text = living.run("dlq", "status", "--json")
            took.append(time.perf_counter() - start_s)
        listed = json.loads(text)["jobs"]
        codes = {job["wait_code"] for job in listed}
        start_s = time.perf_counter()
        living.run("dlq", "--help")
        helped_s = time.perf_counter() - start_s
    report.figure(
        f"status --json of {len(listed)} waiting jobs, median", percentile(took, 0.5), "s",
        at_most=1,
        note=f"{RUNS} runs, {min(took):.2f} to {max(took):.2f} s; {', '.join(sorted(codes))}",
    )  # fmt: skip
    report.figure("dlq --help", helped_s, "s")
    report.end()


if __name__ == "__main__":
    main()
