"""`srun -G1 true` outside a job, whole: from the call to its exit, beside real Slurm.

    python -m benchmarks.commands.srun_round_trip [--count N] [--json]

Each call is a process that allocates, runs one task and gives the GPU back. A master and an agent
with virtual GPUs run on this host, as does Slurm with its own settings of a test. dlq's calls go
through the user's server of commands; `slow` is the way without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_compat.install import FRONT, install
from support.ports import free_ports
from support.real_slurm import RealSlurm, missing


def main() -> None:
    """Measure Slurm, then dlq."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    report = Report.begin("commands.srun_round_trip", parser)
    count = int(report.options.count)
    # The address of a socket has 108 characters.
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    try:
        with _slurm(report, root) as theirs:
            _measure(report, root, count, theirs)
    finally:
        shutil.rmtree(root)
    report.end()


@contextmanager
def _slurm(report: Report, root: Path) -> Iterator[dict[str, str]]:
    """The environment of its commands; empty where there is none."""
    if missing():
        report.say(f"no Slurm here: {missing()}")
        yield {}
        return
    (root / "slurm").mkdir()
    with RealSlurm(root / "slurm", free_ports(2)[0]):
        yield dict(os.environ)


def _measure(report: Report, root: Path, count: int, theirs: dict[str, str]) -> None:
    programs = install(root / "programs", FRONT if FRONT.exists() else None)
    runtime = root / "x"
    runtime.mkdir(mode=0o700)
    with Living(root) as living:
        living.run("dlq", "login")
        living.start_agent("n1", "fake:8xH100-80GB")
        ours = {
            **living.environment, "PATH": f"{programs}:{living.environment['PATH']}",
            "HOME": os.environ.get("HOME", "/"), "XDG_RUNTIME_DIR": str(runtime),
        }  # fmt: skip
        slow = {**ours, "DLQ_NO_HELPER": "1"}
        _told(report, "dlq, slow way", [call_ms("srun", slow) for _ in range(max(5, count // 4))])
        call_ms("srun", ours)
        while FRONT.exists() and not list((runtime / "dlq").glob("*.sock")):
            time.sleep(0.05)
        both = {"Slurm": theirs, "dlq": ours} if theirs else {"dlq": ours}
        took_ms: dict[str, list[float]] = {name: [] for name in both}
        for environment in both.values():
            call_ms("srun", environment)  # it warms up
        for _ in range(count):  # in turn: other work of this host meets both
            for name, environment in both.items():
                took_ms[name].append(call_ms("srun", environment))
        for name in both:
            _told(report, name, took_ms[name])
        shutil.rmtree(runtime / "dlq", ignore_errors=True)  # ends the server


def _told(report: Report, whose: str, took_ms: list[float]) -> None:
    report.figure(f"{whose}, srun -G1 true, p50", median(took_ms), "ms")
    report.figure(f"{whose}, srun -G1 true, p95", quantiles(took_ms, n=20)[-1], "ms")


def call_ms(name: str, environment: dict[str, str]) -> float:
    """The time of one call."""
    program = shutil.which(name, path=environment["PATH"])
    assert program is not None
    start_s = time.perf_counter()
    done = subprocess.run(
        [program, "-G1", "true"], env=environment, cwd="/tmp", capture_output=True, check=False
    )
    took_ms = 1e3 * (time.perf_counter() - start_s)
    assert done.returncode == 0, done.stderr
    return took_ms


if __name__ == "__main__":
    main()
