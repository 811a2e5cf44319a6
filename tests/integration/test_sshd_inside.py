"""The sshd of one session that `dlq ssh` starts inside a job, and real clients of OpenSSH."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dlq_cli.app import App
from dlq_cli.interactive.sshd import key_of, options, serving_words
from support.terminal import Terminal
from support.waiting import wait_until

PROGRAMS = ("ssh", "ssh-keygen", "scp", "unshare", "setpriv")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
HAS_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING) or not HAS_SSHD, reason="OpenSSH is not installed"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can stand in for another account"),
]
UID, NAME = 54_017, "tester"

LISTENING = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    line, _ = listening.accept()
    line.sendall(b"from the job")
    line.close()
"""


@pytest.fixture(autouse=True, scope="module")
def _mounts() -> None:
    done = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("this host lets nobody mount")


@pytest.fixture
def app(tmp_path: Path) -> App:
    home = tmp_path / "home"
    return cast(App, SimpleNamespace(home=home, home_origin="--home"))


@pytest.fixture
def job() -> Iterator[Path]:
    """The directory of a job's account, which is no root."""
    place = Path("/tmp") / f"dlq-sshd-test-{os.getpid()}-{time.monotonic_ns()}"
    place.mkdir(mode=0o755)
    os.chown(place, UID, UID)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def config(app: App, job: Path, tmp_path: Path) -> Path:
    """A configuration of ssh whose line is the command that runs inside the job."""
    accounts = Path("/etc/passwd").read_text() + f"{NAME}:x:{UID}:{UID}::{job}:/bin/sh\n"
    (tmp_path / "passwd").write_text(accounts)
    variables = [f"PATH={os.environ['PATH']}", f"TMPDIR={job}", "COLOUR=sky blue", "DLQ_JOB_ID=17"]
    drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    serve = serving_words(key_of(app).with_suffix(".pub").read_text().strip())
    inside = shlex.join([*drop, "env", "-i", *variables, *serve])
    line = tmp_path / "line"
    line.write_text(
        "#!/bin/sh\nexec unshare -m /bin/sh -c "
        + shlex.quote(f"mount --bind {tmp_path}/passwd /etc/passwd && exec {inside}")
    )
    line.chmod(0o755)
    written = tmp_path / "config"
    settings = options(app, str(line), NAME)
    written.write_text("Host dlq-*\n" + "".join(f"  {k} {v}\n" for k, v in settings.items()))
    return written


def ssh(config: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["ssh", "-F", str(config), "dlq-17", *words],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60.0, check=False,
    )  # fmt: skip


def test_a_command_has_the_jobs_account_and_variables(config: Path) -> None:
    done = ssh(config, 'echo "$COLOUR" $DLQ_JOB_ID; id -u; exit 3')
    assert done.stdout.decode().split("\n")[:2] == ["sky blue 17", str(UID)], done.stderr
    assert done.returncode == 3


def test_another_key_is_refused(config: Path, app: App) -> None:
    key = key_of(app)
    key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    assert ssh(config, "true").returncode == 255


def test_files_go_both_ways(config: Path, job: Path, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(300_000))
    for source, target in ((str(sent), f"dlq-17:{job}/f"), (f"dlq-17:{job}/f", str(back))):
        subprocess.run(["scp", "-q", "-F", str(config), source, target], check=True, timeout=60.0)
    assert back.read_bytes() == sent.read_bytes()
    assert (job / "f").stat().st_uid == UID


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_rsync_copies_a_directory(config: Path, job: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "file").write_bytes(b"content")
    line = f"ssh -F {config}"
    words = ["rsync", "-a", "--no-owner", "--no-group", "-e", line]
    subprocess.run(
        [*words, f"{tmp_path}/data/", f"dlq-17:{job}/data/"],
        check=True, timeout=60.0, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (job / "data" / "deep" / "file").read_bytes() == b"content"


def test_an_editor_reaches_loopback_and_no_other_address(config: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        try:
            assert _through(config, f"127.0.0.1:{port}").stdout == b"from the job"
            assert _through(config, f"169.254.169.254:{port}").returncode == 255
        finally:
            program.kill()


DIRECT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    print(line.recv(100).decode())
"""


def test_a_tunnel_reaches_a_port_of_the_host_just_as_a_program_of_the_job_does(
    config: Path,
) -> None:
    """The port belongs to root, and to no job."""
    with subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        port = program.stdout.readline().decode().strip()
        drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        try:
            direct = [*drop, "/usr/bin/python3", "-c", DIRECT, port]
            alone = subprocess.run(direct, capture_output=True, check=True, timeout=60.0)
            assert alone.stdout == b"from the job\n"
            assert _through(config, f"127.0.0.1:{port}").stdout == b"from the job"
        finally:
            program.kill()


def test_a_job_with_a_network_of_its_own_has_no_tunnel_to_the_host(config: Path) -> None:
    """As in a container with `--network none`: its sshd is in its network namespace."""
    line = config.with_name("line")
    line.write_text(line.read_text().replace("exec unshare -m", "exec unshare -n -m"))
    with subprocess.Popen([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        try:
            assert ssh(config, "true").returncode == 0  # the session itself needs no network
            assert _through(config, f"127.0.0.1:{port}").returncode == 255
        finally:
            program.kill()


def _through(config: Path, target: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["ssh", "-F", str(config), "-W", target, "dlq-17"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60.0, check=False,
    )  # fmt: skip


def test_the_keys_of_a_session_go_with_it(config: Path, job: Path) -> None:
    assert ssh(config, "ls -d dlq-ssh.*").returncode == 0
    wait_until(lambda: not list(job.glob("dlq-ssh.*")), what="the files are gone", timeout_s=60.0)


def test_a_terminal_that_sshd_may_not_give_ends_no_session(config: Path) -> None:
    with Terminal(["ssh", "-F", str(config), "dlq-17"], dict(os.environ)) as terminal:
        terminal.press("echo first-$((1+1)); exit 5\n")
        terminal.expect("first-2")


def test_in_a_job_of_roots_that_may_not_change_its_root_it_says_so(app: App) -> None:
    if not shutil.which("capsh"):
        pytest.skip("there is no capsh")
    words = serving_words(key_of(app).with_suffix(".pub").read_text().strip())
    inside = ["capsh", "--drop=cap_sys_chroot", "--", "-c", shlex.join(words)]
    done = subprocess.run(
        inside, stdin=subprocess.DEVNULL, capture_output=True, timeout=60.0, check=False
    )
    assert done.returncode == 126
    assert b"cannot run in a job of root's" in done.stderr


def test_without_an_sshd_it_says_so(job: Path) -> None:
    tools = job / "bin"
    tools.mkdir()
    for name in ("sh", "env"):
        (tools / name).symlink_to(f"/bin/{name}")
    words = serving_words("key")
    words[2] = words[2].replace(":/usr/sbin:/usr/local/sbin:/sbin", "")
    done = subprocess.run(words, env={"PATH": str(tools)}, capture_output=True, check=False)
    assert done.returncode == 127
    assert b"no sshd is installed" in done.stderr
