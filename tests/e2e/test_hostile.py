"""Jobs that mean harm, on a real cluster: they end as they should, and no heartbeat is late for
them.

What a job may do to other users' files, to setuid programs and to paths is looked at where these
walls stand: tests/unit/nodeagent/shim/test_shim_identity.py, tests/integration/test_podman_walls.py
and test_agent_submitter.py.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import processes  # found by conftest.py
from dlq.v1 import job_pb2, node_pb2
from dlq_client.jobs import Jobs
from support.hostile_cluster import PIDS_MAX, HeartbeatWatch, HostileDaemons, RankGroups
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e]

LONGEST_GAP_S = 5.0  # between two contacts of an agent, as the master has recorded them
FOREVER = "while :; do sleep 0.2; done"


class Hostile:
    """A cluster that has been up for some tests, and its user."""

    def __init__(self, daemons: HostileDaemons, jobs: Jobs, watch: HeartbeatWatch) -> None:
        self.daemons = daemons
        self.jobs = jobs
        self.watch = watch

    def submit(self, script: str, *, memory: int = 0) -> str:
        spec = job_pb2.JobSpec(
            name="hostile",
            command=["/bin/sh", "-c", script],
            working_directory=str(self.daemons.root),
        )
        spec.resources.gpu_count = 1
        spec.preempt.grace_duration.FromSeconds(3)
        if memory:
            spec.resources.memory_limit_bytes = memory
        return self.jobs.submit(spec).job.job_id

    def job(self, job_id: str) -> job_pb2.Job:
        return self.jobs.get(job_id).job

    def wait(self, job_id: str, holds: Callable[[job_pb2.Job], bool], what: str) -> job_pb2.Job:
        def look() -> job_pb2.Job | None:
            job = self.job(job_id)
            return job if holds(job) else None

        job = wait_until(look, what=f"job {job_id}: {what}", timeout_s=120.0)
        assert job is not None
        return job

    def wait_for_end(self, job_id: str) -> job_pb2.Job:
        """Until it has ended and its last attempt is gone."""

        def look() -> job_pb2.Job | None:
            found = self.jobs.get(job_id)
            gone = all(attempt.HasField("end_time") for attempt in found.attempts)
            return found.job if found.job.HasField("end_time") and gone else None

        job = wait_until(look, what=f"the end of job {job_id}", timeout_s=120.0)
        assert job is not None
        return job

    def wait_until_said(self, job_id: str, name: str) -> Path:
        """Until the job has made this file."""
        path = self.daemons.root / name
        wait_until(path.exists, what=f"job {job_id} makes {name}")
        return path

    def attempts(self, job_id: str) -> int:
        return len(self.jobs.get(job_id).attempts)

    def only_on(self, name: str) -> "Hostile":
        """Until further notice new work goes to this node only."""
        others = [other for other in self.daemons.agents if other != name]
        self.daemons.said("admin", "node", "cordon", *others, "--reason", "a test")
        return self

    def anywhere(self) -> None:
        self.daemons.said("admin", "node", "uncordon", *self.daemons.agents)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    root = tmp_path_factory.mktemp("hostile")
    daemons = HostileDaemons(root)
    try:
        with (
            daemons.up(),
            daemons.connect() as line,
            HeartbeatWatch(daemons).running() as watch,
        ):
            yield Hostile(daemons, Jobs(line), watch)
    finally:
        processes.kill_all(root)


@pytest.fixture(autouse=True)
def heartbeats(cluster: Hostile) -> Iterator[None]:
    """After each of the tests every node is there, and none was heard of too late."""
    yield
    fine: tuple[int, tuple[str, ...]] = (node_pb2.NODE_STATE_UP, ())
    wait_until(
        lambda: cluster.watch.now() == dict.fromkeys(cluster.daemons.agents, fine),
        what="every node is up and takes work",
    )
    longest = cluster.watch.longest_s()
    print(f"longest gaps: { {name: round(gap, 2) for name, gap in longest.items()} }")  # noqa: T201
    assert max(longest.values()) <= LONGEST_GAP_S, longest


def test_a_job_that_ignores_every_signal_is_gone_when_it_is_cancelled(cluster: Hostile) -> None:
    script = (
        "import signal, pathlib, time\n"
        "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "pathlib.Path('deaf').touch()\n"
        "while True: time.sleep(1)\n"
    )
    program = cluster.daemons.root / "deaf.py"
    program.write_text(script)
    job = cluster.submit(f"exec {sys.executable} -I -S {program}")
    cluster.wait_until_said(job, "deaf")
    cluster.jobs.cancel(job)
    assert cluster.wait_for_end(job).state == job_pb2.JOB_STATE_CANCELLED
    assert left_of(cluster, job) == []


def test_a_fork_bomb_stays_below_its_limit_and_every_process_of_it_can_be_ended(
    cluster: Hostile,
) -> None:
    program = cluster.daemons.root / "bomb.py"
    program.write_text("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n")
    job = cluster.submit(f"exec {sys.executable} -I -S {program}")
    running = job_pb2.ATTEMPT_STATE_RUNNING
    cluster.wait(job, lambda now: now.attempt_state == running, "it runs")
    groups = RankGroups(cluster.daemons, cluster.job(job).node_ids[0], f"{job}.1.0")
    try:
        wait_until(groups.refused, what="the kernel refuses one more", timeout_s=120.0)
        beside = cluster.submit("exit 0")
        assert cluster.wait_for_end(beside).state == job_pb2.JOB_STATE_COMPLETED
        assert groups.processes() <= PIDS_MAX
        cluster.jobs.cancel(job, kill=True)
        cluster.wait_for_end(job)
        assert groups.processes() == 0
    finally:
        groups.kill()


def test_a_job_that_takes_too_much_memory_is_reported_as_that(cluster: Hostile) -> None:
    job = cluster.submit("exec tail /dev/zero", memory=64 << 20)
    ended = cluster.wait_for_end(job)
    assert (ended.state, ended.end_reason) == (job_pb2.JOB_STATE_FAILED, "oom_host")


def test_too_little_gpu_memory_is_told_apart_under_a_launcher_that_says_more(
    cluster: Hostile,
) -> None:
    """As torchrun does: the words of the worker, then a summary of its own."""
    job = cluster.submit(
        "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 99.00 GiB.'; "
        "for i in 1 2 3 4 5 6 7 8; do echo ======; done; exit 1"
    )
    ended = cluster.wait_for_end(job)
    assert (ended.state, ended.end_reason) == (job_pb2.JOB_STATE_FAILED, "oom_gpu")


def test_a_flood_of_output_is_cut_to_its_head_and_tail(cluster: Hostile) -> None:
    """As fast as the agent's limit lets it, which is more than a gigabyte a minute."""
    job = cluster.submit(
        "timeout 10 yes a-line-of-a-flood-that-nobody-will-read; echo; echo over; exit 3"
    )
    ended = cluster.wait_for_end(job)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 3)
    (node,) = cluster.jobs.get(job).attempts[-1].ranks
    kept = cluster.daemons.root / node.node_id / "attempts" / f"{job}.1.0"
    assert sum(file.stat().st_blocks * 512 for file in kept.rglob("*")) < 12 << 20
    assert cluster.daemons.said("logs", "-n", "1", job) == "over\n"


def test_a_job_that_fills_its_disk_ends_and_its_node_goes_on(cluster: Hostile) -> None:
    """As long as it stays, nothing else is sent to where nothing could start."""
    small = cluster.daemons.small
    cluster.only_on(small)
    try:
        job = cluster.submit(
            'cd "$(dirname "$DLQ_BEAT_FILE")"; mkdir -p deep/down; exec 2>/dev/null; '
            "dd if=/dev/zero of=fill bs=1M count=30; dd if=/dev/zero of=deep/down/fill bs=1M; "
            f"touch {cluster.daemons.root}/filled; until [ -e {cluster.daemons.root}/seen ]; do "
            "sleep 0.1; done; "
            "exit 4"
        )
        cluster.wait_until_said(job, "filled")
        wait_until(
            lambda: "disk_full" in cluster.daemons.said("nodes", "-R"), what="the node's flag"
        )
        after = cluster.submit("exit 0")
        wait_until(lambda: "disk_full" in cluster.daemons.said("why", after), what="why it waits")
        (cluster.daemons.root / "seen").touch()
        ended = cluster.wait_for_end(job)
        assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 4)
        assert cluster.wait_for_end(after).state == job_pb2.JOB_STATE_COMPLETED
        assert cluster.attempts(after) == 1
    finally:
        cluster.anywhere()


def test_jobs_that_end_in_their_first_second_end_once_each_with_their_own_code(
    cluster: Hostile,
) -> None:
    codes = [0, 3, 77] * 10
    jobs = [cluster.submit(f"exit {code}") for code in codes]
    assert [cluster.wait_for_end(job).exit_code for job in jobs] == codes
    assert {cluster.attempts(job) for job in jobs} == {1}


def test_a_job_that_kills_the_agent_it_runs_under_goes_on_and_is_found_by_the_next(
    cluster: Hostile,
) -> None:
    """Where jobs run as the agent's own user, for development; a submitter's job cannot."""
    pids = {name: cluster.daemons.pid(name) for name in cluster.daemons.agents}
    words = " ".join(f"{name}) kill -9 {pid};;" for name, pid in pids.items())
    job = cluster.submit(
        f"touch armed; while [ ! -e fire ]; do sleep 0.1; done; case $DLQ_NODELIST in {words} "
        "esac; "
        "while [ ! -e enough ]; do sleep 0.1; done; exit 5"
    )
    cluster.wait_until_said(job, "armed")
    (node,) = cluster.job(job).node_ids
    cluster.watch.excuse(node)
    (cluster.daemons.root / "fire").touch()
    wait_until(lambda: cluster.daemons.dead(node), what="its agent is dead")
    cluster.daemons.bury(node)
    cluster.daemons.start(node)
    cluster.daemons.wait_for(node)
    cluster.watch.expect(node)
    (cluster.daemons.root / "enough").touch()
    ended = cluster.wait_for_end(job)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 5)
    assert cluster.attempts(job) == 1


def test_a_job_that_brings_down_whatever_runs_it_is_held_after_three_nodes(
    cluster: Hostile,
) -> None:
    job = cluster.submit("kill -9 $PPID; " + FOREVER)
    held = cluster.wait(job, lambda now: now.state == job_pb2.JOB_STATE_HELD, "it is held")
    assert held.hold_kind == job_pb2.HOLD_KIND_POISON
    attempts = cluster.jobs.get(job).attempts
    nodes = [attempt.ranks[0].node_id for attempt in attempts]
    assert len(nodes) == len(set(nodes)) == 3
    assert left_of(cluster, job) == []
    cluster.jobs.cancel(job)


def left_of(cluster: Hostile, job_id: str) -> list[int]:
    """Living processes of a job of this cluster."""
    found = processes.belonging_to(cluster.daemons.root)
    return [each.pid for each in found if each.environment.get("DLQ_JOB_ID") == job_id]
