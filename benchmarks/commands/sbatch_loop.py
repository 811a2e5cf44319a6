"""`sbatch` in a loop: wall and CPU a call, beside real Slurm where that is installed.

    python -m benchmarks.commands.sbatch_loop [--count N] [--json]

Each call is a process, as a script would start it. The CPU of dlq's calls includes that of the
user's server of commands, which runs them. `slow` is the way without that server. Slurm's client
CPU is that of its processes. Goal: at most 3 times Slurm's; without one 14.4 ms and 9 ms. The CPU
of the daemons (slurmctld, slurmd and munged, or the master) is told beside it, without a goal.

Many jobs in one call: an array of 10,000, and 1,000 single jobs by SubmitJobs. Goal of both: a job
of them costs less than a call of Slurm's loop.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_compat.install import FRONT, install
from support.ports import free_ports
from support.real_slurm import RealSlurm, missing

SETTINGS = """queued_per_user = 1000000
submit_burst = 1000000
[log]
level = "warning"
"""
TIMES, SLURM_WALL_MS, SLURM_CPU_MS = 3, 4.8, 3.0
SUBMIT = ("sbatch", "--gres=gpu:1", "--hold", "--wrap", "true")
MANY = 1_000
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure dlq, then Slurm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    report = Report.begin("commands.sbatch_loop", parser)
    count = int(report.options.count)
    # The address of a socket has 108 characters.
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    try:
        wall_ms, cpu_ms = _slurm(report, root, count)
        _dlq(report, root, count, TIMES * wall_ms, TIMES * cpu_ms)
    finally:
        shutil.rmtree(root)
    report.end()


def _slurm(report: Report, root: Path, count: int) -> tuple[float, float]:
    """Wall and CPU of a call there; without a Slurm the figures of another day."""
    if missing():
        report.say(f"no Slurm here: {missing()}")
        return SLURM_WALL_MS, SLURM_CPU_MS
    (root / "slurm").mkdir()
    with RealSlurm(root / "slurm", free_ports(2)[0]) as slurm:
        before_s = used_s(root / "slurm")
        wall_ms, cpu_ms = loop(SUBMIT, dict(os.environ), count)
        daemons_ms = 1e3 * (used_s(root / "slurm") - before_s) / count
        report.figure("Slurm, sbatch, wall", wall_ms, "ms")
        report.figure("Slurm, sbatch, CPU of the client", cpu_ms, "ms")
        report.figure("Slurm, sbatch, CPU of its daemons", daemons_ms, "ms")
        array = [*SUBMIT, "--array=0-1000"]
        report.figure(
            "Slurm, sbatch of an array of 1001", loop(array, dict(os.environ), 3)[0], "ms"
        )
        report.figure("Slurm, squeue", loop(("squeue", "-h"), dict(os.environ), 10)[0], "ms")
        slurm.said("scancel", "--state=PENDING")
    return wall_ms, cpu_ms


def _dlq(report: Report, root: Path, count: int, most_wall_ms: float, most_cpu_ms: float) -> None:
    programs = install(root / "front", FRONT)
    runtime = root / "x"
    runtime.mkdir(mode=0o700)
    with Living(root, SETTINGS) as living:
        living.run("dlq", "login")
        kept = {"HOME": os.environ.get("HOME", "/"), "XDG_RUNTIME_DIR": str(runtime)}
        environment = living.environment | kept
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        slow = loop(SUBMIT, environment | {"DLQ_NO_HELPER": "1"}, max(3, count // 30))
        report.figure("dlq, sbatch, slow way, wall", slow[0], "ms")
        report.figure("dlq, sbatch, slow way, CPU", slow[1], "ms")
        loop(("squeue", "-h"), environment, 1)
        while not list((runtime / "dlq").glob("*.sock")):
            time.sleep(0.05)
        loop(SUBMIT, environment, 5)  # the line to the master is made
        before_s, before_master_s = used_s(runtime), cpu_s(living.master.pid)
        wall_ms, cpu_ms = loop(SUBMIT, environment, count)
        cpu_ms += 1e3 * (used_s(runtime) - before_s) / count
        master_ms = 1e3 * (cpu_s(living.master.pid) - before_master_s) / count
        report.figure("dlq, sbatch, wall", wall_ms, "ms", at_most=most_wall_ms)
        report.figure("dlq, sbatch, CPU with the server's", cpu_ms, "ms", at_most=most_cpu_ms)
        report.figure("dlq, sbatch, CPU of the master", master_ms, "ms")
        array = [*SUBMIT, "--array=0-9999"]
        array_ms = loop(array, environment, 3)[0]
        many_ms = _many_ms(living, MANY)
        report.figure("dlq, sbatch of an array of 10,000", array_ms, "ms")
        report.figure(f"dlq, {MANY} jobs by SubmitJobs", many_ms, "ms")
        for name, each_ms in (
            ("of the array", array_ms / 10_000),
            ("of SubmitJobs", many_ms / MANY),
        ):
            report.figure(
                f"dlq, one job {name}", each_ms, "ms",
                at_most=most_wall_ms / TIMES,
                note=f"{most_wall_ms / TIMES / each_ms:.0f} times ahead of Slurm's loop",
            )  # fmt: skip
        report.figure("dlq, squeue", loop(("squeue", "-h"), environment, 10)[0], "ms")
        shutil.rmtree(runtime / "dlq")  # ends the server


def _many_ms(living: Living, count: int) -> float:
    """Milliseconds for so many jobs in one go, as one program submits them."""
    identity = load_identity(living.home)
    assert identity is not None
    spec = job_pb2.JobSpec(command=["/bin/true"], hold=True, working_directory="/tmp")
    spec.resources.gpu_count = 1
    with Connection(identity) as line:
        jobs = Jobs(line)
        jobs.submit_many([spec])  # the line is made
        start_s = time.perf_counter()
        submitted = jobs.submit_many([spec] * count)
        took_ms = 1e3 * (time.perf_counter() - start_s)
    assert all(one.job_id for one in submitted)
    return took_ms


def loop(
    words: tuple[str, ...] | list[str], environment: dict[str, str], count: int
) -> tuple[float, float]:
    """Milliseconds of wall and of CPU of one call of `count`."""
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for _ in range(count):
        done = subprocess.run(
            [program, *words[1:]], env=environment, cwd="/tmp", capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 1e3 * wall_s / count, 1e3 * cpu_s / count


def used_s(path: Path) -> float:
    """CPU seconds of all processes whose command line holds the path, and of those that they have
    started.
    """
    total = 0
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(path).encode() in (each / "cmdline").read_bytes():
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15]))
    return total * _TICK_S


if __name__ == "__main__":
    main()
