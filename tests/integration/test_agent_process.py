"""The real agent as a process: joins, runs jobs below real shims, dies, comes back, stops."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import agent_service_pb2 as wire
from support.agent_process import AGENT, AgentProcess
from support.stub_master import StubMaster, launch_command, stop_command
from support.waiting import wait_until

pytestmark = pytest.mark.integration

PYTHON = sys.executable
STARTED, STOPPING, EXITED = (
    wire.RANK_PHASE_STARTED,
    wire.RANK_PHASE_STOPPING,
    wire.RANK_PHASE_EXITED,
)
JOBS = count(1)
NO_FORK = """
import sys
def refuse(event, args):
    if event in ("os.fork", "os.forkpty", "subprocess.Popen", "os.system"):
        sys.stderr.write(f"forbidden: {event}\\n")
        raise SystemExit(f"forbidden: {event}")
sys.addaudithook(refuse)
from dlq_nodeagent.app import main
main()
"""


@pytest.fixture(scope="module")
def master() -> Iterator[StubMaster]:
    with StubMaster() as stub:
        yield stub


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory, master: StubMaster) -> Iterator[AgentProcess]:
    node = AgentProcess(tmp_path_factory.mktemp("node"), master)
    done = node.join(master.token())
    assert done.returncode == 0, done.stderr
    yield node
    node.clean_up()


@pytest.fixture
def node(joined: AgentProcess, master: StubMaster) -> AgentProcess:
    """One agent for all, at work."""
    if not joined.is_alive():
        begin(master, joined)
    return joined


@pytest.fixture
def job() -> int:
    """The number of a job that nobody else has."""
    return next(JOBS)


def begin(master: StubMaster, node: AgentProcess, **how: Any) -> wire.Hello:
    """Start the agent; its hello."""
    before = len(master.hellos)
    node.start(**how)
    return next_hello(master, before)


def next_hello(master: StubMaster, before: int) -> wire.Hello:
    """The first after so many."""
    return master.wait_for(lambda: next(iter(master.hellos[before:]), None), f"hello {before + 1}")


def launch(master: StubMaster, job: int, *command: str, **changes: Any) -> None:
    master.command(launch_command(job, *command, epoch=master.epoch, **changes))


def log_of(master: StubMaster, ended: wire.RankReport) -> bytes:
    """All that a rank has written."""
    relay = f"log of {ended.job_id}"
    master.command(
        wire.OpenLogCommand(
            relay_id=relay, job_id=ended.job_id, fence=ended.fence, offset=0, follow=True
        )
    )
    pieces = master.wait_for(
        lambda: told if (told := master.logs.get(relay, [])) and told[-1].end else None, "the log"
    )
    return b"".join(piece.data for piece in pieces)


def test_a_job_runs_with_its_environment_and_its_end_is_reported(
    master: StubMaster, node: AgentProcess, job: int, tmp_path: Path
) -> None:
    hello = master.hellos[-1]
    assert hello.facts.virtual_devices
    assert [gpu.gpu_type for gpu in hello.facts.gpus] == ["h100-80gb"] * 8
    proof = tmp_path / "proof"
    program = f"import json, os; open({str(proof)!r}, 'w').write(json.dumps(dict(os.environ)))"
    launch(master, job, PYTHON, "-c", program, environment={"MINE": "yes"})
    assert master.report(str(job), EXITED).exit_code == 0
    said = json.loads(proof.read_text())
    assert said["MINE"] == "yes"
    assert said["DLQ_FENCE"] == f"{master.epoch}.1"
    assert said["CUDA_VISIBLE_DEVICES"] == ""
    assert said["DLQ_VIRTUAL_DEVICES"] == "VIRTUAL-node-a-0"
    assert "DLQ_SECTION__KEY" not in said


def test_a_script_is_run_by_the_interpreter_it_names(
    master: StubMaster, node: AgentProcess, job: int
) -> None:
    launch(master, job, "7", script=f"#!{PYTHON}\nimport sys\nsys.exit(int(sys.argv[1]))\n")
    assert master.report(str(job), EXITED).exit_code == 7


def test_jobs_outlive_a_killed_agent_and_their_ends_are_told_by_the_next(
    master: StubMaster, node: AgentProcess, job: int, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    launch(master, job, PYTHON, "-c", f"open({str(gate)!r}).read(); raise SystemExit(42)")
    started = master.report(str(job), STARTED)
    node.kill()
    gate.write_text("go")
    exit_file = node.state_dir / "attempts" / f"{job}.1.0" / "exit.json"
    wait_until(exit_file.exists, what="the job has ended")
    node.start()
    report = master.report(str(job), EXITED, after=started.sequence)
    assert report.exit_code == 42


def test_a_graceful_stop_of_the_agent_leaves_jobs_running(
    master: StubMaster, node: AgentProcess, job: int, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    launch(master, job, PYTHON, "-c", f"open({str(gate)!r}).read()")
    started = master.report(str(job), STARTED)
    assert node.stop() == 0
    hello = begin(master, node)
    assert [(rank.job_id, rank.phase) for rank in hello.ranks] == [(str(job), STARTED)]
    gate.write_text("go")
    assert master.report(str(job), EXITED, after=started.sequence).exit_code == 0


def test_a_training_script_is_paused_and_its_checkpoint_reported(
    master: StubMaster, node: AgentProcess, job: int, tmp_path: Path
) -> None:
    program = """
import dlq_train
run = dlq_train.init()
step = 0
while True:
    step += 1
    run.beat(step, loss=0.5)
    if run.should_stop():
        run.save(step, lambda at: (at / "w").write_text(str(step)))
        run.leave()
"""
    directory = tmp_path / "ckpt" / str(job) / "1"
    launch(master, job, PYTHON, "-c", program, checkpoint_directory=str(directory))
    master.report(str(job), STARTED)
    master.wait_for(lambda: True if steps_of(master, job) else None, "progress in a heartbeat")
    master.command(stop_command(job, grace_s=20.0, epoch=master.epoch))
    report = master.report(str(job), EXITED)
    assert (report.exit_code, report.ended_by) == (99, "exited")
    assert report.checkpoint.after_notice
    assert report.checkpoint.path.startswith(str(directory))
    assert report.checkpoint.evidence == "marker"


def steps_of(master: StubMaster, job: int) -> list[int]:
    told = [one for beat in master.heartbeats for one in beat.progress if one.job_id == str(job)]
    return [one.step for one in told if one.step > 0]


def test_output_is_sent_when_asked_for(master: StubMaster, node: AgentProcess, job: int) -> None:
    launch(master, job, "/bin/echo", "hello", "world")
    assert log_of(master, master.report(str(job), EXITED)) == b"hello world\n"


def test_a_command_that_does_not_exist_exits_127_and_the_log_says_so(
    master: StubMaster, node: AgentProcess, job: int
) -> None:
    launch(master, job, "nonexistent-cmd")
    report = master.report(str(job), EXITED)
    assert report.exit_code == 127
    assert report.error == "exec: No such file or directory: 'nonexistent-cmd'"
    said = log_of(master, report).decode()
    assert said == f"dlq: cannot run the job: {report.error}\n"


def test_the_agent_comes_back_when_the_master_hangs_up(
    master: StubMaster, node: AgentProcess
) -> None:
    before = len(master.hellos)
    master.epoch += 1
    master.hang_up()
    assert next_hello(master, before).highest_epoch == master.epoch - 1
    assert node.stop() == 0
    for line in node.output.read_text().splitlines():
        assert isinstance(json.loads(line), dict)


def test_the_agent_never_forks(master: StubMaster, joined: AgentProcess, job: int) -> None:
    if joined.is_alive():
        assert joined.stop() == 0
    begin(master, joined, program=(PYTHON, "-c", NO_FORK))
    launch(master, job, "/bin/echo", "hello")
    master.report(str(job), EXITED)
    assert joined.stop() == 0
    assert "forbidden" not in joined.output.read_text()


def test_a_second_agent_over_the_same_state_directory_is_refused(
    master: StubMaster, node: AgentProcess
) -> None:
    second = subprocess.run(
        [AGENT, "run", "--config", node.config], capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert "another agent runs" in second.stderr


def test_a_token_of_another_cluster_is_refused_before_anything_is_said(
    master: StubMaster, tmp_path: Path
) -> None:
    with StubMaster() as stranger:
        refused = AgentProcess(tmp_path, master).join(stranger.token())
    assert refused.returncode == 1
    assert "not of the cluster" in refused.stderr


def test_an_agent_without_an_identity_is_told_to_join(master: StubMaster, tmp_path: Path) -> None:
    node = AgentProcess(tmp_path, master)
    refused = subprocess.run(
        [AGENT, "run", "--config", node.config], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "join" in refused.stderr
