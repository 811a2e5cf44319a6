"""The time of a resize beyond the job's own save and load.

    python -m benchmarks.node.resizes [--count N] [--mib N] [--json]

A real master under the default policy, an agent, and an elastic job (saving_job.py). It gives 6 of
8 GPUs back when another job comes, and grows again when that has gone. It notes on CLOCK_BOOTTIME
when it sees the notice, has saved, begins again, and has loaded. Beyond both: from saved to the
next attempt's first line. It covers the end of the process, two commits of the master and a start.
The time from there until it loads is the job's own imports. The floor is an interpreter's time to
its first line. The goal, 150 ms beyond it, is that of a pause and of a resume together
(benchmarks/node/pauses.py), and ours.

Terms last two seconds here: how long a job waits for its boundary is no downtime, since it trains
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.node.pauses import (
    LIBRARY,
    PAUSE_GOAL_MS,
    PROGRAM,
    RESUME_GOAL_MS,
    interpreter_floor_s,
)
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report

SETTINGS = """
[lease]
be_term = "2s"
slo_term = "8s"
save_lead = "0s"
resume = "0s"

[nodes]
start_grace = "1s"

[scheduler]
policy = "dlq"
settings = { cooldown_s = "off", min_run = "off", know = "unknown" }
"""
PATIENCE_S = 60.0
Notes = dict[int, dict[str, float]]  # of each attempt: step -> instant


def resized(living: Living, count: int, mib: int) -> Notes:
    """The notes of the job over this number of resizes."""
    said = living.root / "notes"
    job = living.run(
        "dlq", "submit", "--parsable", "--elastic-sizes", "2,8", "--env", f"PYTHONPATH={LIBRARY}", "--workdir", "/tmp",  # noqa: E501
        "--", sys.executable, str(PROGRAM), str(said), str(mib),
    )  # fmt: skip
    _until(lambda: "load_end" in notes(said).get(1, {}), "it runs")
    other = ""
    for number in range(1, count + 1):
        if other:
            living.run("dlq", "cancel", other)
            other = ""
        else:
            words = ("-G", "6", "--workdir", "/tmp", "--", "/bin/sleep", "3600")
            other = living.run("dlq", "submit", "--parsable", *words).strip()
        _until(lambda now=number: "load_end" in notes(said).get(now + 1, {}), f"resize {number}")  # type: ignore[misc]
        time.sleep(0.2)
    found = notes(said)
    for job_id in filter(None, (job.strip(), other)):
        living.run("dlq", "cancel", "--kill", job_id)
    return found


def notes(said: Path) -> Notes:
    """The lines written so far."""
    found: Notes = {}
    for line in said.read_text().splitlines() if said.exists() else ():
        note = json.loads(line)
        found.setdefault(note["attempt"], {})[note["what"]] = note["at_s"]
    return found


def _until(true: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.05)


def tell(report: Report, found: Notes, floor_s: float) -> None:
    """Step by step, and our own part of it."""
    pairs = [(found[at], found[at + 1]) for at in sorted(found) if at + 1 in found]
    down = [new["load_end"] - old["noticed"] for old, new in pairs]
    _tell(report, "notice to loaded: all of it", down)
    _tell(report, "the job's own save", [old["saved"] - old["noticed"] for old, _ in pairs])
    _tell(report, "saved to the first line", [new["begun"] - old["saved"] for old, new in pairs])
    beyond = [new["begun"] - old["saved"] - floor_s for old, new in pairs]
    goal_ms = PAUSE_GOAL_MS + RESUME_GOAL_MS
    _tell(report, "a resize beyond save, load and the floor", beyond, at_most_ms=goal_ms)
    _tell(
        report,
        "first line to load, the job's own",
        [new["load_begin"] - new["begun"] for _, new in pairs],
    )
    _tell(report, "the job's own load", [new["load_end"] - new["load_begin"] for _, new in pairs])


def _tell(
    report: Report, name: str, took_s: Sequence[float], *, at_most_ms: float | None = None
) -> None:
    least, p95 = 1e3 * min(took_s), 1e3 * percentile(list(took_s), 0.95)
    note = f"least {least:.1f}, p95 {p95:.1f} of {len(took_s)}"
    value_ms = 1e3 * percentile(list(took_s), 0.5)
    report.figure(f"{name}, p50", value_ms, "ms", at_most=at_most_ms, note=note)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=20, help="resizes")
    parser.add_argument("--mib", type=int, default=8, help="size of the checkpoint")
    report = Report.begin("node.resizes", parser)
    floor_s = interpreter_floor_s()
    report.figure("floor: an interpreter to its first line, p50", 1e3 * floor_s, "ms")
    with tempfile.TemporaryDirectory() as name:
        report.disk(Path(name))
        with Living(Path(name), SETTINGS) as living:
            living.start_agent("n1", "fake:8xH100-80GB")
            found = resized(living, report.options.count, report.options.mib)
    tell(report, found, floor_s)
    report.end()


if __name__ == "__main__":
    main()
