"""`srun` inside a job, whole: from the call to its exit, beside real Slurm.

    python -m benchmarks.commands.step_start [--count N] [--json]

One batch script times each call itself, by two readings of the kernel's clock. With dlq a second
job has two nodes, whose agents run on this host.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_compat.install import install
from support.ports import free_ports
from support.real_slurm import RealSlurm, missing

# bash reads EPOCHREALTIME without a process of its own; the first call warms up.
SCRIPT = """\
#!/bin/bash
srun {step} true
for each in $(seq {count}); do
    start=${{EPOCHREALTIME/./}}
    srun {step} true
    echo $((${{EPOCHREALTIME/./}} - start))
done > {out}.draft
mv {out}.draft {out}
"""
LONGEST_S = 300.0


def main() -> None:
    """Measure Slurm, then dlq on one node and on two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    report = Report.begin("commands.step_start", parser)
    count = int(report.options.count)
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))  # a socket's address is short
    try:
        if missing():
            report.say(f"no Slurm here: {missing()}")
        else:
            (root / "slurm").mkdir()
            with RealSlurm(root / "slurm", free_ports(2)[0]):
                took_us = steps_us(root, dict(os.environ), ("-n1",), "-n1", count)
                _told(report, "Slurm, one task", took_us)
        programs = install(root / "programs")
        with Living(root) as living:
            living.run("dlq", "login")
            for name in ("n1", "n2"):
                living.start_agent(name, "fake:8xH100-80GB")
            path = f"{programs}:{living.environment['PATH']}"
            environment = {**living.environment, "PATH": path}
            one, two = ("-N1", "-G1"), ("-N2", "--gpus-per-node=1")
            _told(report, "dlq, one task", steps_us(root, environment, one, "-n1", count))
            _told(report, "dlq, two nodes", steps_us(root, environment, two, "-N2 -n2", count))
    finally:
        shutil.rmtree(root)
    report.end()


def _told(report: Report, whose: str, took_us: list[int]) -> None:
    report.figure(f"{whose}, srun true, p50", median(took_us) / 1e3, "ms")
    report.figure(f"{whose}, srun true, p95", quantiles(took_us, n=20)[-1] / 1e3, "ms")


def steps_us(
    root: Path, environment: Mapping[str, str], options: tuple[str, ...], step: str, count: int
) -> list[int]:
    """The time of each of `count` steps in one job, in microseconds."""
    program = shutil.which("sbatch", path=environment["PATH"])
    assert program is not None
    script, out = root / "steps.sh", root / "took"
    out.unlink(missing_ok=True)
    script.write_text(SCRIPT.format(count=count, step=step, out=out))
    words = [program, "-D", str(root), "-o", str(root / "said"), *options, str(script)]
    subprocess.run(words, env=dict(environment), check=True, capture_output=True)
    until_s = time.monotonic() + LONGEST_S
    while not out.exists():
        assert time.monotonic() < until_s, (root / "said").read_text()
        time.sleep(0.05)
    return [int(line) for line in out.read_text().split()]


if __name__ == "__main__":
    main()
