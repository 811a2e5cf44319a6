"""The parts of `srun -G1 true`: CPU time by process, and time by the clock from step to step.

    python -m benchmarks.race.srun_parts [--count N] [--json]

A master and an agent with virtual GPUs run on this host, and calls go through the user's server of
commands. The scheduler counts daemons in nanoseconds. The kernel's ticks count what they started:
the process of each call, and the shims and shells of its job.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from google.protobuf.timestamp_pb2 import Timestamp

from benchmarks.live.dispatch import spent_s
from benchmarks.node.chain import scheduled_ms
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_compat.install import FRONT, install

STEPS = ("until it is stored", "until it starts", "until it ends", "until the call returns")
REST_S = 1.0  # the last processes end


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    report = Report.begin("race.srun_parts", parser)
    # The address of a socket has 108 characters.
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))
    try:
        _measure(report, root, int(report.options.count))
    finally:
        shutil.rmtree(root)
    report.end()


def _measure(report: Report, root: Path, count: int) -> None:
    programs = install(root / "programs", FRONT if FRONT.exists() else None)
    runtime = root / "x"
    runtime.mkdir(mode=0o700)
    with Living(root) as living:
        living.run("dlq", "login")
        agent = living.start_agent("n1", "fake:8xH100-80GB")
        environment = {
            **living.environment, "PATH": f"{programs}:{living.environment['PATH']}",
            "HOME": os.environ.get("HOME", "/"), "XDG_RUNTIME_DIR": str(runtime),
        }  # fmt: skip
        call = _caller(environment)
        call()
        while FRONT.exists() and not list((runtime / "dlq").glob("*.sock")):
            time.sleep(0.05)
        call()
        time.sleep(REST_S)
        parts = _parts(living.master.pid, agent.pid, str(runtime).encode())
        before = parts()
        spans = [call() for _ in range(count)]
        time.sleep(REST_S)
        for name, spent_ms in parts().items():
            report.figure(f"CPU of {name}", (spent_ms - before.get(name, 0.0)) / count, "ms")
        report.figure("a call", 1e3 * median(end_s - begin_s for begin_s, end_s in spans), "ms")
        _steps(report, living, spans)
        shutil.rmtree(runtime / "dlq", ignore_errors=True)  # ends the server


def _caller(environment: dict[str, str]) -> Callable[[], tuple[float, float]]:
    program = shutil.which("srun", path=environment["PATH"])
    assert program is not None

    def call() -> tuple[float, float]:
        begin_s = time.time()
        done = subprocess.run(
            [program, "-G1", "true"], env=environment, cwd="/tmp", capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return begin_s, time.time()

    return call


def _parts(master: int, agent: int, runtime: bytes) -> Callable[[], dict[str, float]]:
    """Milliseconds by now. The server of commands and its keeper are there all the time, and so
    they are the first of the processes with that directory.
    """
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    server, keeper = sorted([pid for pid in pids if runtime in _words(pid)], key=_began)[:2]

    def now() -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "the small program": 1e3 * (usage.ru_utime + usage.ru_stime),
            "the processes of commands": 1e3 * (spent_s(server)[1] - spent_s(keeper)[0]),
            "their server and its line": scheduled_ms(server) + scheduled_ms(keeper),
            "the master": scheduled_ms(master),
            "the agent": scheduled_ms(agent),
            "shims and shells": 1e3 * spent_s(agent)[1],
        }

    return now


def _words(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _began(pid: int) -> int:
    """In ticks since the boot; processes of the same tick are told apart by nothing."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19])


def _steps(report: Report, living: Living, spans: list[tuple[float, float]]) -> None:
    identity = load_identity(living.home)
    assert identity is not None
    with Connection(identity) as line:
        found = Jobs(line).list(states=("completed",)).jobs
    jobs = sorted(found, key=lambda job: int(job.job_id))[-len(spans) :]
    rows = [
        (begin_s, _s(job.submit_time), _s(job.start_time), _s(job.end_time), end_s)
        for job, (begin_s, end_s) in zip(jobs, spans, strict=True)
    ]
    for place, name in enumerate(STEPS):
        report.figure(name, 1e3 * median(row[place + 1] - row[place] for row in rows), "ms")


def _s(time_: Timestamp) -> float:
    return time_.seconds + time_.nanos / 1e9


if __name__ == "__main__":
    main()
