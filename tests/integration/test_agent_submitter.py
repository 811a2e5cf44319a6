"""An agent of root that runs a job as its submitter: rights, directories, script and files."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.text.wire import to_duration
from support.agent_process import AgentProcess
from support.ports import free_ports
from support.ring_of_two import BUFFERS
from support.stub_master import StubMaster, launch_command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts jobs of others"),
]

NOBODY = 65534
EXITED, START_FAILED = wire.RANK_PHASE_EXITED, wire.RANK_PHASE_START_FAILED


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that other users can pass, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="dlq-submitter-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def master(place: Path) -> Iterator[StubMaster]:
    with StubMaster() as stub:
        agent = AgentProcess(place, stub)
        text = agent.config.read_text().replace('run_as = "self"', 'run_as = "submitter"')
        agent.config.write_text(text.replace("allow_root = true", "allow_root = false"))
        assert agent.join(stub.token()).returncode == 0
        (agent.state_dir / "users.map").write_text(f"{NOBODY}:{NOBODY}:\n")
        agent.start()
        stub.wait_for(lambda: stub.hellos or None, "a hello")
        yield stub
        agent.clean_up()


def log_of(master: StubMaster, job_id: str, fence: object) -> bytes:
    """What the job wrote."""
    master.command(wire.OpenLogCommand(relay_id=job_id, job_id=job_id, fence=fence))  # type: ignore[arg-type]
    pieces = master.wait_for(
        lambda: p if (p := master.logs.get(job_id, [])) and p[-1].end else None, "the log"
    )
    return b"".join(piece.data for piece in pieces)


def test_a_job_has_its_users_rights_and_nothing_more(master: StubMaster, place: Path) -> None:
    home = place / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    script = """#!/bin/sh
id -u; id -g; id -G
touch "$DLQ_BEAT_FILE" "$DLQ_DONE_FILE" "$DLQ_CHECKPOINT_DIR/mine" && echo wrote
cat "$0" > /dev/null && echo read
"""
    checkpoints = home / "ckpt" / "1" / "1"
    master.command(
        launch_command(
            1,
            script=script,
            uid=NOBODY,
            gid=NOBODY,
            user="nobody",
            checkpoint_directory=str(checkpoints),
        )
    )
    report = master.report("1", EXITED)
    said = log_of(master, "1", report.fence).decode().split()
    assert report.exit_code == 0, said
    assert said == [str(NOBODY)] * 3 + ["wrote", "read"]
    assert report.done
    assert (checkpoints / "mine").stat().st_uid == NOBODY
    assert checkpoints.stat().st_uid == NOBODY


def test_a_directory_that_the_user_may_not_make_is_refused(master: StubMaster, place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o755)
    command = launch_command(
        2, "/bin/true", uid=NOBODY, gid=NOBODY, checkpoint_directory=str(closed / "2" / "1")
    )
    master.command(command)
    report = master.report("2", EXITED)
    assert "cannot be made" in report.error
    assert report.exit_code == 126
    assert log_of(master, "2", report.fence).decode() == (
        f"dlq: cannot run the job: {report.error}\n"
    )
    assert list(closed.iterdir()) == []


def test_uid_0_is_refused(master: StubMaster) -> None:
    master.command(launch_command(3, "/bin/true", uid=0, gid=0, user="root"))
    report = master.report("3", START_FAILED)
    assert "no user id of their own" in report.error
    assert report.start_cause == "account"


def test_a_user_whom_this_host_does_not_list_is_refused(master: StubMaster) -> None:
    master.command(launch_command(4, "/bin/true", uid=4242, gid=4242, user="eve"))
    report = master.report("4", START_FAILED)
    assert "users map" in report.error
    assert report.start_cause == "account"


def test_a_directory_of_another_process_is_its_users_mistake(master: StubMaster) -> None:
    """What /proc shows of it may not be followed: that is no fault of the host."""
    command = launch_command(16, "/bin/true", uid=NOBODY, gid=NOBODY)
    command.spec.working_directory = "/proc/1/root"
    master.command(command)
    report = master.report("16", EXITED)
    assert report.exit_code == 126
    assert "the working directory /proc/1/root cannot be used" in report.error


def test_a_job_can_kill_neither_its_agent_nor_its_launcher_nor_its_shim(master: StubMaster) -> None:
    script = """#!/bin/sh
launcher=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$PPID/status")
agent=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$launcher/status")
echo "$(tr '\\0' ' ' < "/proc/$agent/cmdline")"
for number in 9 15 19; do
    for target in "$agent" "$launcher" "$PPID"; do
        kill "-$number" "$target" 2>/dev/null && echo "killed $target"
    done
done
exit 3
"""
    master.command(launch_command(5, script=script, uid=NOBODY, gid=NOBODY, user="nobody"))
    report = master.report("5", EXITED)
    said = log_of(master, "5", report.fence).decode()
    assert report.exit_code == 3, said
    assert "dlq-nodeagent" in said, "it has found its agent"
    assert "killed" not in said


def test_traffic_is_recorded_and_read_with_the_users_rights(
    master: StubMaster, place: Path
) -> None:
    ring = (Path(__file__).parents[1] / "support" / "ring_of_two.py").read_text()
    (port,) = free_ports(1)
    launch = launch_command(6, "30", script=f"#!/usr/bin/python3\n{ring}", uid=NOBODY, gid=NOBODY)
    launch.user, launch.master_port, launch.spec.launch = "nobody", port, "per-gpu"
    launch.gpu_indexes[:] = [0, 1]
    launch.profile.window_duration.CopyFrom(to_duration(60.0))
    master.command(launch)
    told = master.wait_for(lambda: master.evidence[0] if master.evidence else None, "evidence")
    assert (told.traffic.reason, told.model_bytes) == ("", sum(BUFFERS))
    assert master.report("6", EXITED).exit_code == 0
    assert (place / "agent" / "profiles").stat().st_mode & 0o777 == 0o711
