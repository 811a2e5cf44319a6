"""The real agent as a process: joins, runs jobs below real shims, dies, comes back, stops."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def master() -> Iterator[StubMaster]:
    with StubMaster() as stub:
        yield stub


@pytest.fixture
def node(tmp_path: Path, master: StubMaster) -> Iterator[AgentProcess]:
    node = AgentProcess(tmp_path, master)
    joined = node.join(master.token())
    assert joined.returncode == 0, joined.stderr
    yield node
    node.clean_up()


def hello_count(master: StubMaster, count: int) -> wire.Hello:
    """The hello of that number."""
    return master.wait_for(
        lambda: master.hellos[count - 1] if len(master.hellos) >= count else None, f"hello {count}"
    )


def test_a_job_runs_with_its_environment_and_its_end_is_reported(
    master: StubMaster, node: AgentProcess, tmp_path: Path
) -> None:
    node.start()
    hello = hello_count(master, 1)
    assert hello.facts.virtual_devices
    assert [gpu.gpu_type for gpu in hello.facts.gpus] == ["h100-80gb"] * 8
    proof = tmp_path / "proof"
    program = f"import json, os; open({str(proof)!r}, 'w').write(json.dumps(dict(os.environ)))"
    master.command(launch_command(1, PYTHON, "-c", program, environment={"MINE": "yes"}))
    assert master.report("1", EXITED).exit_code == 0
    said = json.loads(proof.read_text())
    assert said["MINE"] == "yes"
    assert said["DLQ_FENCE"] == "1.1"
    assert said["CUDA_VISIBLE_DEVICES"] == ""
    assert said["DLQ_VIRTUAL_DEVICES"] == "VIRTUAL-node-a-0"
    assert "DLQ_SECTION__KEY" not in said


def test_a_script_is_run_by_the_interpreter_it_names(
    master: StubMaster, node: AgentProcess
) -> None:
    node.start()
    hello_count(master, 1)
    master.command(
        launch_command(1, "7", script=f"#!{PYTHON}\nimport sys\nsys.exit(int(sys.argv[1]))\n")
    )
    assert master.report("1", EXITED).exit_code == 7


def test_jobs_outlive_a_killed_agent_and_their_ends_are_told_by_the_next(
    master: StubMaster, node: AgentProcess, tmp_path: Path
) -> None:
    node.start()
    hello_count(master, 1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    wait = f"open({str(gate)!r}).read(); raise SystemExit(42)"
    master.command(launch_command(1, PYTHON, "-c", wait))
    started = master.report("1", STARTED)
    node.kill()
    gate.write_text("go")
    exit_file = node.state_dir / "attempts" / "1.1.0" / "exit.json"
    wait_until(exit_file.exists, what="the job has ended")
    node.start()
    report = master.report("1", EXITED, after=started.sequence)
    assert report.exit_code == 42


def test_a_graceful_stop_of_the_agent_leaves_jobs_running(
    master: StubMaster, node: AgentProcess, tmp_path: Path
) -> None:
    node.start()
    hello_count(master, 1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    master.command(launch_command(1, PYTHON, "-c", f"open({str(gate)!r}).read()"))
    started = master.report("1", STARTED)
    assert node.stop() == 0
    node.start()
    hello = hello_count(master, 2)
    assert [(rank.job_id, rank.phase) for rank in hello.ranks] == [("1", STARTED)]
    gate.write_text("go")
    assert master.report("1", EXITED, after=started.sequence).exit_code == 0


def test_a_training_script_is_paused_and_its_checkpoint_reported(
    master: StubMaster, node: AgentProcess, tmp_path: Path
) -> None:
    node.start()
    hello_count(master, 1)
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
    directory = tmp_path / "ckpt" / "1" / "1"
    master.command(launch_command(1, PYTHON, "-c", program, checkpoint_directory=str(directory)))
    master.report("1", STARTED)
    master.wait_for(
        lambda: next((p for b in master.heartbeats for p in b.progress if p.step > 0), None),
        "progress in a heartbeat",
    )
    master.command(stop_command(1, grace_s=20.0))
    report = master.report("1", EXITED)
    assert (report.exit_code, report.ended_by) == (99, "exited")
    assert report.checkpoint.after_notice
    assert report.checkpoint.path.startswith(str(directory))
    assert report.checkpoint.evidence == "marker"


def test_output_is_sent_when_asked_for(master: StubMaster, node: AgentProcess) -> None:
    node.start()
    hello_count(master, 1)
    master.command(launch_command(1, "/bin/echo", "hello", "world"))
    exited = master.report("1", EXITED)
    master.command(
        wire.OpenLogCommand(relay_id="r1", job_id="1", fence=exited.fence, offset=0, follow=True)
    )
    pieces = master.wait_for(
        lambda: p if (p := master.logs.get("r1", [])) and p[-1].end else None, "the log"
    )
    assert b"".join(piece.data for piece in pieces) == b"hello world\n"


def test_a_command_that_does_not_exist_exits_127_and_the_log_says_so(
    master: StubMaster, node: AgentProcess
) -> None:
    node.start()
    hello_count(master, 1)
    master.command(launch_command(1, "nonexistent-cmd"))
    report = master.report("1", EXITED)
    assert report.exit_code == 127
    assert report.error == "exec: No such file or directory: 'nonexistent-cmd'"
    master.command(wire.OpenLogCommand(relay_id="r1", job_id="1", fence=report.fence))
    pieces = master.wait_for(
        lambda: p if (p := master.logs.get("r1", [])) and p[-1].end else None, "the log"
    )
    said = b"".join(piece.data for piece in pieces).decode()
    assert said == f"dlq: cannot run the job: {report.error}\n"


def test_the_agent_comes_back_when_the_master_hangs_up(
    master: StubMaster, node: AgentProcess
) -> None:
    node.start()
    hello_count(master, 1)
    master.epoch = 2
    master.hang_up()
    assert hello_count(master, 2).highest_epoch == 1
    assert node.stop() == 0
    for line in node.output.read_text().splitlines():
        assert isinstance(json.loads(line), dict)


def test_the_agent_never_forks(master: StubMaster, node: AgentProcess) -> None:
    node.start(program=(PYTHON, "-c", NO_FORK))
    hello_count(master, 1)
    master.command(launch_command(1, "/bin/echo", "hello"))
    master.report("1", EXITED)
    assert node.stop() == 0
    assert "forbidden" not in node.output.read_text()


def test_a_second_agent_over_the_same_state_directory_is_refused(
    master: StubMaster, node: AgentProcess
) -> None:
    node.start()
    hello_count(master, 1)
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
