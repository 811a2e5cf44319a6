"""The processor time of a job that does nothing, over master, agents and shims, in rounds.

    python -m benchmarks.node.chain [--nodes N] [--jobs N] [--rounds N] [--json]

As in the race's line of the whole chain, the jobs go to real agents with virtual GPUs on this host.
A round is one call with all its jobs, and the first round does not count.

The scheduler counts master and agents in nanoseconds, and the kernel's ticks count what they
started. The client is not counted; the race counts about 0.6 ms for it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.live.dispatch import spent_s
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity

GOAL_MS = 9.0
LOOK_S = 0.2
_OF_A_PROCESS = 2


def scheduled_ms(pid: int) -> float:
    """Time that a process was on a core, with its threads that have ended."""
    clock = (~pid << 3) | _OF_A_PROCESS  # as clock_getcpuclockid(3) makes it
    return time.clock_gettime_ns(clock) / 1e6


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    report = Report.begin("node.chain", parser)
    with tempfile.TemporaryDirectory() as directory, Living(Path(directory)) as living:
        names = [f"n{number}" for number in range(report.options.nodes)]
        agents = [living.start_agent(name, "fake:8xH100-80GB") for name in names]
        living.run("dlq", "login")
        identity = load_identity(living.home)
        assert identity is not None
        with Connection(identity) as line:
            jobs = Jobs(line)
            rounds = [
                _round(jobs, report.options.jobs, living.master.pid, agents)
                for _ in range(report.options.rounds + 1)
            ][1:]
    for place, name in enumerate(("master", "agents", "shims and jobs")):
        report.figure(f"{name}, a job", median(one[place] for one in rounds), "ms of CPU")
    report.figure("whole chain, a job", median(map(sum, rounds)), "ms of CPU", at_most=GOAL_MS)
    report.end()


def _round(
    jobs: Jobs, count: int, master: int, agents: list[subprocess.Popen[bytes]]
) -> tuple[float, float, float]:
    """Milliseconds for each job: of the master, the agents, and all that those started."""
    spec = job_pb2.JobSpec(command=["/bin/true"], working_directory="/tmp")
    spec.resources.gpu_count = 1

    def spent() -> tuple[float, float, float]:
        below_ms = sum(1e3 * spent_s(agent.pid)[1] for agent in agents)
        return scheduled_ms(master), sum(scheduled_ms(it.pid) for it in agents), below_ms

    before = spent()
    jobs.submit_many([spec] * count)
    while jobs.list(states=("queued", "running")).jobs:
        time.sleep(LOOK_S)
    one, two, three = ((new - old) / count for new, old in zip(spent(), before, strict=True))
    return one, two, three


if __name__ == "__main__":
    main()
