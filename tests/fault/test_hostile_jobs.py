"""Jobs that mean harm, again and again: each ends as it must, and no node is lost by it.

Each kind runs `RUNS` times beside a job that works. Told are the longest gap between two contacts
of an agent, and the part of its work that the neighbour lost. tests/e2e/test_hostile.py tests what
each kind may do. `make prove ONLY=hostile` runs this.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq_client.jobs import Jobs
from support.harness import HERE
from support.hostile_cluster import HeartbeatWatch, HostileDaemons, RankGroups
from support.proofs import proved
from support.waiting import wait_until

RUNS = int(os.environ.get("RUNS", "2"))
PATIENCE_S = 120.0
ALONE_S = 5.0  # the neighbour's work before all harm
RUNNING = job_pb2.ATTEMPT_STATE_RUNNING
PYTHON = f"exec {sys.executable} -I -S"
BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
# A grandchild in a session of its own, deaf to all that can be ignored.
UNDYING = """\
import os, pathlib, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        pathlib.Path(os.environ["SAYS"]).touch()
    while True: time.sleep(1)
time.sleep(1000)
"""


@dataclass
class HostileRuns:
    """The cluster, its user, and the figures of each kind."""

    daemons: HostileDaemons
    jobs: Jobs
    watch: HeartbeatWatch
    figures: dict[str, float] = field(default_factory=dict)
    neighbour: Path = Path()
    alone: float = 0.0  # rounds a second of the neighbour without harm
    runs: int = 0

    def submit(self, script: str, *, memory: int = 0, says: Path | None = None) -> str:
        spec = job_pb2.JobSpec(
            name="hostile",
            command=["/bin/sh", "-c", script],
            working_directory=str(self.daemons.root),
            environment={"SAYS": str(says)} if says else {},
        )
        spec.resources.gpu_count = 1
        spec.preempt.grace_duration.FromSeconds(1)
        if memory:
            spec.resources.memory_limit_bytes = memory
        self.runs += 1
        return self.jobs.submit(spec).job.job_id

    def wait(self, job_id: str, holds: Callable[[job_pb2.Job], bool], what: str) -> job_pb2.Job:
        def look() -> job_pb2.Job | None:
            job = self.jobs.get(job_id).job
            return job if holds(job) else None

        job = wait_until(look, what=f"job {job_id}: {what}", timeout_s=PATIENCE_S)
        assert job is not None
        return job

    def end_of(self, job_id: str) -> job_pb2.Job:
        return self.wait(
            job_id,
            lambda job: (
                job.HasField("end_time")
                and all(one.HasField("end_time") for one in self.jobs.get(job_id).attempts)
            ),
            "it ends",
        )

    def groups(self, job_id: str) -> RankGroups:
        job = self.wait(job_id, lambda now: now.attempt_state == RUNNING, "it runs")
        return RankGroups(self.daemons, job.node_ids[0], f"{job_id}.1.0")

    def program(self, name: str, text: str) -> str:
        path = self.daemons.root / name
        path.write_text(text)
        return f"{PYTHON} {path}"

    # --- the neighbour ------------------------------------------------------------------------

    def begin_neighbour(self) -> None:
        self.neighbour = self.daemons.root / "neighbour"
        script = f"{PYTHON} {HERE / 'neighbour_job.py'} {self.neighbour}"
        self.runs -= 1
        self.jobs.get(self.submit(script))
        wait_until(self.neighbour.exists, what="the neighbour works")
        threading.Event().wait(ALONE_S)
        self.alone = self.rate_since(time.monotonic() - ALONE_S)

    def rate_since(self, since_s: float) -> float:
        """Rounds a second of the neighbour since then."""
        told = [line.split() for line in self.neighbour.read_text().splitlines()]
        points = [(float(at), int(rounds)) for at, rounds in told if float(at) >= since_s]
        if len(points) < 2:
            return 0.0
        (first_s, before), (last_s, after) = points[0], points[-1]
        return (after - before) / (last_s - first_s)


def fork_bomb(runs: HostileRuns) -> None:
    job = runs.submit(runs.program("bomb.py", BOMB))
    groups = runs.groups(job)
    try:
        wait_until(groups.refused, what="the kernel refuses one more", timeout_s=PATIENCE_S)
        runs.jobs.cancel(job, kill=True)
        runs.end_of(job)
        assert groups.processes() == 0
    finally:
        groups.kill()


def memory_hog(runs: HostileRuns) -> None:
    ended = runs.end_of(runs.submit("exec tail /dev/zero", memory=64 << 20))
    assert (ended.state, ended.end_reason) == (job_pb2.JOB_STATE_FAILED, "oom_host")


def log_flood(runs: HostileRuns) -> None:
    ended = runs.end_of(runs.submit("timeout 3 yes a-line-that-nobody-will-read; exit 3"))
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 3)


def unkillable_child(runs: HostileRuns) -> None:
    says = runs.daemons.root / f"undying-{runs.runs}"
    job = runs.submit(runs.program("undying.py", UNDYING), says=says)
    groups = runs.groups(job)
    wait_until(says.exists, what="its grandchild is deaf", timeout_s=PATIENCE_S)
    runs.jobs.cancel(job)
    assert runs.end_of(job).state == job_pb2.JOB_STATE_CANCELLED
    assert groups.processes() == 0


def agent_killer(runs: HostileRuns) -> None:
    pids = {name: runs.daemons.pid(name) for name in runs.daemons.agents}
    words = " ".join(f"{name}) kill -9 {pid};;" for name, pid in pids.items())
    fire = runs.daemons.root / f"fire-{runs.runs}"
    job = runs.submit(
        f"while [ ! -e {fire} ]; do sleep 0.1; done; case $DLQ_NODELIST in {words} esac; "
        f"while [ ! -e {fire}.enough ]; do sleep 0.1; done; exit 5"
    )
    (node,) = runs.wait(job, lambda now: now.attempt_state == RUNNING, "it runs").node_ids
    runs.watch.excuse(node)
    fire.touch()
    wait_until(lambda: runs.daemons.dead(node), what="its agent is dead", timeout_s=PATIENCE_S)
    runs.daemons.bury(node)
    runs.daemons.start(node)
    runs.daemons.wait_for(node)
    runs.watch.expect(node)
    fire.with_name(f"{fire.name}.enough").touch()
    ended = runs.end_of(job)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 5)
    assert len(runs.jobs.get(job).attempts) == 1


def poison(runs: HostileRuns) -> None:
    job = runs.submit("kill -9 $PPID; while :; do sleep 0.2; done")
    held = runs.wait(job, lambda now: now.state == job_pb2.JOB_STATE_HELD, "it is held")
    assert held.hold_kind == job_pb2.HOLD_KIND_POISON
    nodes = [attempt.ranks[0].node_id for attempt in runs.jobs.get(job).attempts]
    assert len(nodes) == len(set(nodes)) <= 3
    most = runs.figures.get("poison_attempts", 0)
    runs.figures["poison_attempts"] = max(most, len(nodes))
    runs.jobs.cancel(job)


KINDS = (fork_bomb, memory_hog, log_flood, unkillable_child, agent_killer, poison)


@pytest.mark.torture
def test_hostile_jobs_end_as_they_must_and_cost_no_node(tmp_path: Path) -> None:
    daemons = HostileDaemons(tmp_path)
    fine: tuple[int, tuple[str, ...]] = (node_pb2.NODE_STATE_UP, ())
    with (
        daemons.up(),
        daemons.connect() as line,
        HeartbeatWatch(daemons).running() as watch,
    ):
        runs = HostileRuns(daemons, Jobs(line), watch)
        runs.begin_neighbour()
        for kind in KINDS:
            began_s = time.monotonic()
            for _ in range(RUNS):
                kind(runs)
            rate = runs.rate_since(began_s)
            runs.figures[f"neighbour_loss_{kind.__name__}_percent"] = round(
                max(0.0, 100 * (1 - rate / runs.alone))
            )
        wait_until(
            lambda: watch.now() == dict.fromkeys(daemons.agents, fine),
            what="every node is up and takes work",
            timeout_s=PATIENCE_S,
        )
        longest_s = max(watch.longest_s().values())
        for job in runs.jobs.list(user="*").jobs:
            if not job.HasField("end_time"):
                runs.jobs.cancel(job.job_id)
    proved(
        "hostile jobs", runs=runs.runs, kinds=len(KINDS), nodes_lost=0,
        longest_gap_s=round(longest_s, 1), **runs.figures,
    )  # fmt: skip
