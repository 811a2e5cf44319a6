"""The price of `dlq admin profile` for a busy master: CPU time of a submit with and without it.

    python -m benchmarks.live.profiled [--count N] [--pairs N] [--json]

Pairs of stretches follow each other, one of them with a profile. The order changes with each pair,
for a queue that grows makes later submits dearer. Clients and master share the machine.
Goal: a profile adds at most 5 % to the CPU time of a submit.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.live.submits import SETTINGS, submit_many
from benchmarks.support.living import BIN, Living, cpu_s
from benchmarks.support.report import Report
from dlq_client.line.identity import Identity, load_identity

GOAL = 0.05
IN_FLIGHT = 16
SECONDS = 300  # of a profile: longer than any stretch, and it ends with its caller
BEGIN_S = 2.0  # until the profile has begun, its handshake included


def main() -> None:
    """Measure so many pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--pairs", type=int, default=6)
    report = Report.begin("live.profiled", parser)
    with tempfile.TemporaryDirectory() as directory, Living(Path(directory), SETTINGS) as living:
        living.run("dlq", "login")
        identity = load_identity(living.home)
        assert identity is not None
        stretches = count(1)
        submits = partial(_cpu_of_submit, living, identity, report.options.count, stretches)
        submits()  # warm
        pairs = [
            _pair(living, submits, first=bool(number % 2)) for number in range(report.options.pairs)
        ]
    without, with_it = (1e6 * median(side) for side in zip(*pairs, strict=True))
    report.figure("CPU of a submit, without a profile", without, "us")
    report.figure("CPU of a submit, with one", with_it, "us")
    added = median(with_ / without - 1.0 for without, with_ in pairs)
    report.figure("added by a profile, median of pairs", added, "of it", at_most=GOAL)
    report.end()


def _pair(living: Living, submits: Callable[[], float], *, first: bool) -> tuple[float, float]:
    """CPU seconds of a submit without and with a profile; `first`: the profiled one."""
    found = {}
    for profiled in (first, not first):
        caller = _begin(living) if profiled else None
        found[profiled] = submits()
        if caller is not None:
            caller.terminate()
            caller.wait()
    return found[False], found[True]


def _begin(living: Living) -> subprocess.Popen[bytes]:
    command = [str(BIN / "dlq"), "--no-helper", "admin", "profile", "--seconds", str(SECONDS)]
    caller = subprocess.Popen(command, env=living.environment, stdout=subprocess.DEVNULL)
    time.sleep(BEGIN_S)
    return caller


def _cpu_of_submit(
    living: Living, identity: Identity, jobs: int, stretches: Iterator[int]
) -> float:
    master_s = cpu_s(living.master.pid)
    _, took = asyncio.run(submit_many(identity, jobs, IN_FLIGHT, next(stretches)))
    return (cpu_s(living.master.pid) - master_s) / len(took)


if __name__ == "__main__":
    main()
