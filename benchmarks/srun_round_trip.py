"""`srun -G1 true` outside a job, whole: from the call to its exit, beside real Slurm.

    python -m benchmarks.srun_round_trip [--count N] [--json]

Each call is a process that allocates, runs one task and gives the GPU back. A master and an agent
with virtual GPUs run on this host, as does Slurm with its own settings of a test. dlq's calls go
through the user's server of commands; `slow` is the way without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from benchmarks.living import Living
from benchmarks.report import Report

from dlq_compat.install import FRONT, install
from support.ports import free_ports
from support.real_slurm import RealSlurm, missing


def main() -> None:
    """Measure Slurm, then dlq."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    report = Report.begin("srun_round_trip", parser)
    count = int(report.options.count)
    # The address of a socket has 108 characters.
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    try:
        if missing():
            report.say(f"no Slurm here: {missing()}")
        else:
            (root / "slurm").mkdir()
            with RealSlurm(root / "slurm", free_ports(2)[0]):
                _told(report, "Slurm", calls_ms("srun", dict(os.environ), count))
        _dlq(report, root, count)
    finally:
        shutil.rmtree(root)
    report.end()


def _dlq(report: Report, root: Path, count: int) -> None:
    programs = install(root / "programs", FRONT if FRONT.exists() else None)
    runtime = root / "x"
    runtime.mkdir(mode=0o700)
    with Living(root) as living:
        living.run("dlq", "login")
        living.start_agent("n1", "fake:8xH100-80GB")
        environment = {
            **living.environment, "PATH": f"{programs}:{living.environment['PATH']}",
            "HOME": os.environ.get("HOME", "/"), "XDG_RUNTIME_DIR": str(runtime),
        }  # fmt: skip
        slow = {**environment, "DLQ_SLURM_SLOW": "1"}
        _told(report, "dlq, slow way", calls_ms("srun", slow, max(5, count // 4)))
        calls_ms("srun", environment, 1)
        while FRONT.exists() and not list((runtime / "dlq").glob("*.sock")):
            time.sleep(0.05)
        _told(report, "dlq", calls_ms("srun", environment, count))
        shutil.rmtree(runtime / "dlq", ignore_errors=True)  # ends the server


def _told(report: Report, whose: str, took_ms: list[float]) -> None:
    report.figure(f"{whose}, srun -G1 true, p50", median(took_ms), "ms")
    report.figure(f"{whose}, srun -G1 true, p95", quantiles(took_ms, n=20)[-1], "ms")


def calls_ms(name: str, environment: dict[str, str], count: int) -> list[float]:
    """The time of each call; the first one, which warms up, is left out."""
    program = shutil.which(name, path=environment["PATH"])
    assert program is not None
    took_ms = []
    for _ in range(count + 1):
        start_s = time.perf_counter()
        done = subprocess.run(
            [program, "-G1", "true"], env=environment, cwd="/tmp", capture_output=True, check=False
        )
        took_ms.append(1e3 * (time.perf_counter() - start_s))
        assert done.returncode == 0, done.stderr
    return took_ms[1:]


if __name__ == "__main__":
    main()
