"""`dlq shell` and `dlq ssh` on real daemons, one of which dies meanwhile."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.harness import BIN, Daemons
from support.terminal import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.long("integration/test_sshd_inside.py")]
DLQ = str(BIN / "dlq")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("shells"), ("n1",))
    with made.up():
        yield made


@contextmanager
def running_job(daemons: Daemons) -> Iterator[str]:
    asked = ("submit", "--parsable", "-G", "1", "--env", "COLOUR=sky blue", "--", "sleep", "1000")
    job_id = daemons.said(*asked).strip()
    daemons.said("wait", "--for", "running", "--timeout", "60s", job_id)
    try:
        yield job_id
    finally:
        daemons.dlq("cancel", "--kill", job_id)


def ran(daemons: Daemons, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return daemons.ran(*words, stdin=stdin, timeout_s=60.0)


def test_words_are_a_command_of_the_shell_as_with_ssh(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        done = ran(daemons, DLQ, "shell", job_id, "echo", '"$COLOUR";', "exit", "3")
        piped = ran(daemons, DLQ, "shell", job_id, stdin=b"echo $DLQ_JOB_ID; exit 4\n")
    assert (done.stdout, done.returncode) == (b"sky blue\n", 3)
    assert (piped.stdout.decode(), piped.returncode) == (f"{job_id}\n", 4)


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_rsync_takes_it_for_its_line(daemons: Daemons, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(os.urandom(500_000))
    with running_job(daemons) as job_id:
        words = (
            "rsync",
            "-a",
            "-e",
            f"{DLQ} shell",
            f"{tmp_path}/from/",
            f"{job_id}:{tmp_path}/to/",
        )
        done = ran(daemons, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to" / "file").read_bytes() == (tmp_path / "from" / "file").read_bytes()


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_rsync_brings_a_large_file_back_and_forth(daemons: Daemons, tmp_path: Path) -> None:
    """More than its pipes hold, and those never wait for our writes."""
    sent, there, back = (tmp_path / name for name in ("sent", "there", "back"))
    sent.write_bytes(os.urandom(64 << 20))
    with running_job(daemons) as job_id:
        line = ("rsync", "-a", "-e", f"{DLQ} shell")
        for ends in ((str(sent), f"{job_id}:{there}"), (f"{job_id}:{there}", str(back))):
            done = ran(daemons, *line, *ends)
            assert done.returncode == 0, done.stderr
    assert back.read_bytes() == sent.read_bytes()


def test_a_shell_at_a_terminal_goes_on_when_the_master_is_restarted(daemons: Daemons) -> None:
    with (
        running_job(daemons) as job_id,
        Terminal([DLQ, "shell", job_id], daemons.environment()) as terminal,
    ):
        terminal.press("stty size; echo first-$((1+1))\n")
        terminal.expect("first-2")
        daemons.kill("master")
        terminal.press("echo second-$((1+2))\n")
        daemons.start("master")
        daemons.wait_for("master")
        terminal.expect("second-3")
        terminal.press("exit 5\n")
        assert terminal.end() == 5


def test_where_no_sshd_can_run_ssh_is_a_shell(daemons: Daemons) -> None:
    """Jobs of this cluster run as root, without the rights that sshd needs then."""
    with running_job(daemons) as job_id:
        done = ran(daemons, DLQ, "ssh", job_id, "echo", "$COLOUR;", "exit", "6")
    assert (done.stdout, done.returncode) == (b"sky blue\n", 6)
    assert b"this is dlq shell" in done.stderr


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_a_stanza_for_all_jobs_and_one_for_a_job(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        every = daemons.said("ssh-config", "--user", "ada").splitlines()
        one = daemons.said("ssh-config", job_id).splitlines()
    assert every[0] == "Host dlq-*"
    assert every[1].endswith("ssh --stdio '%n'")
    assert "  User ada" in every
    assert one[0] == f"Host dlq-{job_id}"
    assert one[1].endswith(f"ssh --stdio {job_id}")
    assert any(line.startswith("  User ") for line in one)


def test_a_job_that_does_not_run_is_named(daemons: Daemons) -> None:
    for words in (("shell", "99999", "true"), ("ssh", "99999"), ("ssh-config", "99999")):
        assert daemons.dlq(*words).code == 3, words


@pytest.mark.skipif(
    shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None,
    reason="OpenSSH is not installed",
)
def test_the_line_of_a_stanza_says_that_no_sshd_can_run(daemons: Daemons) -> None:
    with running_job(daemons) as job_id:
        done = ran(daemons, DLQ, "ssh", "--stdio", f"dlq-{job_id}")
    assert done.returncode == 126
    assert b"cannot run in a job of root's" in done.stderr
