"""One user of a shared checkpoint root attacks another: a real agent of root, two real accounts
without rights.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from support.agent_process import AgentProcess
from support.stub_master import StubMaster, launch_command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts jobs of others"),
]

VICTIM, ATTACKER = 64_101, 64_102
EXITED, START_FAILED = wire.RANK_PHASE_EXITED, wire.RANK_PHASE_START_FAILED
SAVE = """#!/bin/sh
step="$DLQ_CHECKPOINT_DIR/step-000001"
mkdir -p "$step" && echo weights > "$step/model" && echo '{"step": 1}' > "$step/COMMITTED"
echo "resumes from $DLQ_RESUME_FROM"
ls -ld "$DLQ_CHECKPOINT_DIR"
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that other users can pass, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="dlq-checkpoints-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def root(place: Path) -> Path:
    """A root for everybody's checkpoints, as `dlq-master init` makes it."""
    made = place / "shared"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.fixture(scope="module")
def master(place: Path) -> Iterator[StubMaster]:
    with StubMaster() as stub:
        agent = AgentProcess(place, stub)
        text = agent.config.read_text().replace('run_as = "self"', 'run_as = "submitter"')
        agent.config.write_text(text.replace("allow_root = true", "allow_root = false"))
        assert agent.join(stub.token()).returncode == 0
        (agent.state_dir / "users.map").write_text(f"{VICTIM}:{VICTIM}:\n{ATTACKER}:{ATTACKER}:\n")
        agent.start()
        stub.wait_for(lambda: stub.hellos or None, "a hello")
        yield stub
        agent.clean_up()


def start(master: StubMaster, job: int, root: Path, *, attempt: int = 1, resume: str = "") -> None:
    """A job of the victim's, as a master of this version or of one before sends it."""
    at = str(root / str(job) / str(attempt))
    launch = launch_command(
        job, script=SAVE, uid=VICTIM, gid=VICTIM, user="victim", checkpoint_directory=at
    )
    launch.fence.attempt, launch.resume_from = attempt, resume
    master.command(launch)


def as_attacker(work: str, *args: str) -> str:
    """Run a shell script with the attacker's rights; what it prints."""
    ids = (f"--reuid={ATTACKER}", f"--regid={ATTACKER}", "--clear-groups")
    command = ["setpriv", *ids, "/bin/sh", "-c", work, "sh", *args]
    done = subprocess.run(
        command, cwd="/", stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    return done.stdout


@pytest.mark.parametrize(
    ("job", "ready"),
    [
        (41, 'mkdir -m 777 -p "$1/41/1"'),
        (42, 'mkdir -m 777 "$1/42"'),
        (43, 'mkdir -m 777 -p "$1/evil/1" && ln -s "$1/evil" "$1/43"'),
        (44, 'mkdir "$1/44" && mkdir -m 777 "$1/evil2" && ln -s "$1/evil2" "$1/44/1"'),
        (45, 'ln -s "$1/nowhere" "$1/45"'),
    ],
)
def test_a_directory_made_beforehand_by_another_is_refused(
    master: StubMaster, root: Path, job: int, ready: str
) -> None:
    as_attacker(ready, str(root))
    start(master, job, root)
    report = master.report(str(job), START_FAILED)
    assert f"uid {ATTACKER}" in report.error
    assert f"{root}/{job}" in report.error
    assert report.start_cause == "checkpoints"
    assert not [path for path in root.rglob("*") if path.lstat().st_uid == VICTIM], (
        "nothing of the victim's was written there"
    )


def test_a_step_that_another_swapped_is_not_resumed_from(master: StubMaster, root: Path) -> None:
    evil = root / "51" / "1" / "step-000001"
    as_attacker(
        'mkdir -m 755 -p "$1" && echo evil > "$1/model" && echo > "$1/COMMITTED"', str(evil)
    )
    own = root / "52"
    start(master, 52, root)
    saved = master.report("52", EXITED).checkpoint.path
    assert saved == str(own / "1" / "step-000001")
    start(master, 53, root, resume=str(evil))
    report = master.report("53", START_FAILED)
    assert f"uid {ATTACKER}" in report.error
    assert "to resume from" in report.error


def test_what_is_the_victims_is_private_and_resumed_from(master: StubMaster, root: Path) -> None:
    start(master, 61, root)
    report = master.report("61", EXITED)
    saved = report.checkpoint.path
    assert (report.exit_code, saved) == (0, str(root / "61" / "1" / "step-000001"))
    for level in (root / "61", root / "61" / "1"):
        facts = level.stat()
        assert (facts.st_uid, facts.st_mode & 0o7777) == (VICTIM, 0o700)
    assert (
        as_attacker('cat "$1/model" "$1/COMMITTED" 2>/dev/null; ls "$1" 2>/dev/null', saved) == ""
    )
    assert as_attacker('mv "$1" "$1.x" 2>/dev/null && echo moved', str(root / "61")) == ""
    start(master, 62, root, resume=saved)
    report = master.report("62", EXITED)
    assert report.exit_code == 0, report.error


def test_a_named_directory_of_another_is_its_users_mistake(
    master: StubMaster, place: Path, root: Path
) -> None:
    theirs = root / "theirs"
    as_attacker('mkdir -m 777 "$1"', str(theirs))
    launch = launch_command(
        71, script=SAVE, uid=VICTIM, gid=VICTIM, checkpoint_directory=str(theirs / "71" / "1")
    )
    launch.checkpoint_base = launch.spec.checkpoint.directory = str(theirs)
    master.command(launch)
    report = master.report("71", EXITED)
    assert report.exit_code == 126
    assert f"{theirs} is neither the submitter's nor root's" in report.error
    assert list(theirs.iterdir()) == []
