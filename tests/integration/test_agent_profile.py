"""The traffic profiler below a real agent: real shims, real libraries, real rings, a stub
master.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import profile_pb2
from dlq_common.text.wire import from_duration, to_duration
from dlq_profiler.job import job_of
from dlq_profiler.results import ProcessProfile
from support.agent_process import AgentProcess
from support.ports import free_ports
from support.ring_of_two import BUFFERS, PAUSE_S
from support.stub_master import StubMaster, launch_command
from support.waiting import wait_until

pytestmark = pytest.mark.integration

RING = Path(__file__).parents[1] / "support" / "ring_of_two.py"
EXITED = wire.RANK_PHASE_EXITED


@pytest.fixture(scope="module")
def master() -> Iterator[StubMaster]:
    with StubMaster() as stub:
        yield stub


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, master: StubMaster) -> Iterator[AgentProcess]:
    """One agent for all, at work; each test has jobs of its own, and leaves no rings behind."""
    node = AgentProcess(tmp_path_factory.mktemp("node"), master)
    assert node.join(master.token()).returncode == 0
    node.start()
    master.wait_for(lambda: master.hellos or None, "the agent")
    yield node
    node.clean_up()


def order(job: int, *command: str, window_s: float, **changes: Any) -> wire.LaunchCommand:
    """A rank that is profiled."""
    command_ = launch_command(job, *command, **changes)
    command_.profile.window_duration.CopyFrom(to_duration(window_s))
    return command_


def ring(job: int, *words: str, window_s: float) -> wire.LaunchCommand:
    """Both ranks on this node, by dlq's own launcher."""
    (port,) = free_ports(1)
    launch = order(job, sys.executable, str(RING), *words, window_s=window_s, master_port=port)
    launch.gpu_indexes[:] = [0, 1]
    launch.spec.launch = "per-gpu"
    return launch


def evidence_of(master: StubMaster, job: int, count: int = 1) -> profile_pb2.ProfileEvidence:
    """What was told of a job, for the first or a later time."""

    def told() -> profile_pb2.ProfileEvidence | None:
        found = [each for each in master.evidence if each.job_id == str(job)]
        return found[count - 1] if len(found) >= count else None

    return master.wait_for(told, f"evidence {count} of job {job}")


def places(node: AgentProcess) -> list[str]:
    """Who has rings on this node."""
    at = node.state_dir / "profiles"
    return sorted(os.listdir(at)) if at.exists() else []


def test_a_job_of_two_ranks_tells_its_sizes_and_times_while_it_runs_on(
    master: StubMaster, node: AgentProcess
) -> None:
    master.acks_profiles = False
    master.command(ring(1, window_s=4.0))
    told = evidence_of(master, 1)
    assert (told.fence.epoch, told.fence.attempt, told.node_rank) == (1, 1, 0)
    assert (told.gpu_type, told.gpu_count, told.node_count) == ("h100-80gb", 2, 1)
    assert (told.process_count, told.rank_count) == (2, 2)
    assert (told.traffic.reason, told.sizes.reason) == ("", "")
    assert told.bytes_per_iteration == sum(BUFFERS)
    assert told.model_bytes == sum(BUFFERS)
    assert told.largest_tensor_low_bytes <= max(BUFFERS) <= told.largest_tensor_high_bytes
    assert from_duration(told.period_duration) >= PAUSE_S
    assert told.iteration_count >= 4
    assert from_duration(told.window_duration) >= 4.0
    assert told.lost_count == 0
    whole = job_of([ProcessProfile.of(facts) for facts in json.loads(told.processes)])
    assert whole.model_bytes == told.model_bytes
    # The rings are gone though the master has not answered, and the job knows nothing of it.
    wait_until(lambda: not places(node), what="the rings are removed")
    assert not any((it.job_id, it.phase) == ("1", EXITED) for it in master.reports)
    # An agent that dies, and a line that breaks, tell it again until they hear that it is known.
    node.kill()
    node.start()
    assert evidence_of(master, 1, 2).bytes_per_iteration == told.bytes_per_iteration
    master.acks_profiles = True
    master.hang_up()
    again = evidence_of(master, 1, 3)
    assert again.processes == told.processes
    assert from_duration(again.age_duration) > from_duration(told.age_duration)


def test_an_agent_that_is_killed_within_the_window_loses_nothing(
    master: StubMaster, node: AgentProcess
) -> None:
    launch = ring(2, "60", window_s=3600.0)
    master.command(launch)
    master.report("2", wire.RANK_PHASE_STARTED)
    wait_until(lambda: list(node.state_dir.glob("profiles/*/rings/*.dlqprof")), what="rings")
    node.kill()
    node.start()
    told = evidence_of(master, 2)
    assert told.model_bytes == sum(BUFFERS)
    assert from_duration(told.window_duration) < 3600.0
    master.report("2", EXITED)
    wait_until(lambda: not places(node), what="the rings are removed")


HOSTILE = """
import os
at = os.environ["DLQ_PROF_DIR"]
os.unlink(f"{at}/control")
os.symlink("/dev/zero", f"{at}/control")
os.mkfifo(f"{at}/1-1.dlqprof")
os.symlink("/dev/zero", f"{at}/2-2.dlqprof")
os.symlink("/etc/shadow", f"{at}/2-2.tensors.json")
os.makedirs(f"{at}/a/b/c")
open(f"{at}/3-3.dlqprof", "wb").write(b"DLQPROF\\0" + b"\\xff" * 100000)
os.truncate(os.open(f"{at}/4-4.dlqprof", os.O_CREAT | os.O_RDWR), 1 << 40)
"""


def test_a_job_that_fills_its_rings_with_traps_harms_only_its_own_result(
    master: StubMaster, node: AgentProcess
) -> None:
    master.command(order(3, sys.executable, "-c", HOSTILE, window_s=60.0))
    assert evidence_of(master, 3).traffic.reason == "analysis-failed"
    assert master.report("3", EXITED).exit_code == 0
    wait_until(lambda: not places(node), what="the rings are removed")


STATIC = b"""
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
void _start(void) { call(1, 1, (long)"as ever\\n", 8); call(60, 7, 0, 0); }
"""


@pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().machine != "x86_64", reason="needs gcc on x86-64"
)
def test_a_program_that_cannot_be_watched_runs_as_ever_and_says_why(
    master: StubMaster, node: AgentProcess, tmp_path: Path
) -> None:
    words = ["gcc", "-static", "-nostdlib", "-x", "c", "-o", str(tmp_path / "static"), "-"]
    subprocess.run(words, input=STATIC, check=True)
    master.command(order(4, str(tmp_path / "static"), window_s=60.0))
    told = evidence_of(master, 4)
    assert (told.traffic.confidence, told.traffic.reason) == ("unknown", "static")
    assert list(told.limits) == ["static"]
    assert master.report("4", EXITED).exit_code == 7
