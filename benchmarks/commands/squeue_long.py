"""`squeue` of 10,000 jobs that wait, each a job of its own, beside real Slurm's.

    python -m benchmarks.commands.squeue_long [--jobs N] [--json]

Both queues hold the same number of jobs. Each call is a process whose output is read whole; dlq's
goes through the user's server of commands, and its CPU includes that server's. Both are asked in
turn, so what else this host does meets both. Goals: with Slurm's default columns, and with -o of
two, at most 10 times Slurm's wall; without a Slurm 500 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.commands.sbatch_loop import used_s
from benchmarks.live.submits import SETTINGS, submit_many
from benchmarks.race.slurm_side import SlurmSide
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq_client.line.identity import load_identity
from dlq_compat.install import FRONT, install
from support.real_slurm import missing

RUNS = 9
TIMES, WITHOUT_SLURM_MS = 10, 500.0
ASKED = {
    "squeue": ("squeue",),
    "squeue -o": ("squeue", "-h", "-o", "%i %T"),
    "squeue of one job": ("squeue", "-h", "-j", "17"),
}
_FILL = 'for i in $(seq "$0"); do sbatch --hold --gres=gpu:1 --wrap true || exit 1; done'


def main() -> None:
    """Fill both, then ask both in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    report = Report.begin("commands.squeue_long", parser)
    count = int(report.options.jobs)
    # The address of a socket has 108 characters.
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    try:
        with _slurm(report, root, count) as theirs, Living(root, SETTINGS) as living:
            ours = _filled(living, root, count)
            for name, words in ASKED.items():
                _compare(report, name, words, ours, theirs, living)
            shutil.rmtree(root / "x" / "dlq", ignore_errors=True)  # ends the server
    finally:
        shutil.rmtree(root)
    report.end()


@contextmanager
def _slurm(report: Report, root: Path, count: int) -> Iterator[dict[str, str]]:
    """The environment of its commands; empty where there is none."""
    if missing():
        report.say(f"no Slurm here: {missing()}")
        yield {}
        return
    (root / "slurm").mkdir()
    with SlurmSide(root / "slurm", 1) as slurm:
        environment = dict(os.environ)
        subprocess.run(
            ["sh", "-c", _FILL, str(count)],
            cwd="/tmp", env=environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        yield environment
        slurm.said("scancel", "--state=PENDING")


def _filled(living: Living, root: Path, count: int) -> dict[str, str]:
    """dlq with its jobs, and the environment of its commands, with a server that is warm."""
    programs = install(root / "front", FRONT if FRONT.exists() else None)
    runtime = root / "x"
    runtime.mkdir(mode=0o700)
    living.run("dlq", "login")
    identity = load_identity(living.home)
    assert identity is not None
    asyncio.run(submit_many(identity, count, 64))
    environment = {
        **living.environment, "PATH": f"{programs}:{living.environment['PATH']}",
        "HOME": os.environ.get("HOME", "/"), "XDG_RUNTIME_DIR": str(runtime),
    }  # fmt: skip
    _took_ms(ASKED["squeue of one job"], environment)
    while FRONT.exists() and not list((runtime / "dlq").glob("*.sock")):
        time.sleep(0.05)
    return environment


def _compare(
    report: Report,
    name: str,
    words: Sequence[str],
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    living: Living,
) -> None:
    ours_ms, theirs_ms = [], []
    runtime = Path(ours["XDG_RUNTIME_DIR"])
    _took_ms(words, ours)
    server_s, master_s = used_s(runtime), cpu_s(living.master.pid)
    for _ in range(RUNS):
        if theirs:
            theirs_ms.append(_took_ms(words, theirs))
        ours_ms.append(_took_ms(words, ours))
    server_ms = 1e3 * (used_s(runtime) - server_s) / RUNS
    master_ms = 1e3 * (cpu_s(living.master.pid) - master_s) / RUNS
    slurm_ms = median(theirs_ms) if theirs_ms else 0.0
    if theirs_ms:
        report.figure(f"Slurm, {name}, median", slurm_ms, "ms")
    report.figure(
        f"dlq, {name}, median", median(ours_ms), "ms",
        at_most=TIMES * slurm_ms if theirs_ms else WITHOUT_SLURM_MS,
        note=f"CPU: server {server_ms:.0f} ms, master {master_ms:.0f} ms",
    )  # fmt: skip


def _took_ms(words: Sequence[str], environment: Mapping[str, str]) -> float:
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None
    start_s = time.perf_counter()
    done = subprocess.run(
        [program, *words[1:]], env=environment, cwd="/tmp", capture_output=True, check=False
    )
    took_ms = 1e3 * (time.perf_counter() - start_s)
    assert done.returncode == 0, done.stderr
    return took_ms


if __name__ == "__main__":
    main()
