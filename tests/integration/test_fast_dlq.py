"""`dlq` through the user's helper: the same bytes as by an interpreter of its own, and no start."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_compat.install import FRONT
from support.front_dlq import PLAIN, FrontDlq
from support.harness import Daemons
from support.terminal import Terminal
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not FRONT.exists(), reason="the front is not compiled (make setup)"),
]
ALONE = {"DLQ_NO_HELPER": "1"}


@pytest.fixture(scope="module")
def front() -> Iterator[FrontDlq]:
    """One server for all."""
    root = Path(tempfile.mkdtemp(prefix="dlqfd", dir="/tmp"))
    try:
        with Daemons(root, agents=("n1",)).up() as daemons:
            (root / "f").mkdir()
            made = FrontDlq(daemons, root / "f")
            try:
                made.serve()
                yield made
            finally:
                made.end()
    finally:
        shutil.rmtree(root)


SAME = (
    (),
    ("--help",),
    ("--version",),
    ("--utc", "status"),
    ("submit", "--help"),
    ("submit", "--hold", "--parsable", "--", "true"),
    ("submit", "--hold", "--parsable", "-o", "/dev/null", "--error=/dev/null", "--", "true"),
    ("submit", "--no-such"),
    ("submit", "--gpus", "99", "--", "true"),
    ("submit", "no-such.toml"),
    ("status",),
    ("status", "-a"),
    ("status", "--json"),
    ("status", "99999"),
    ("show", "1"),
    ("show", "1", "--json"),
    ("why", "1"),
    ("events", "1"),
    ("queues",),
    ("nodes",),
    ("gpus", "--json"),
    ("usage",),
    ("config",),
    ("hold", "99999"),
    ("update", "1", "--nice", "3"),
    ("cancel", "1", "-y"),
)
FOR_THEMSELVES = (
    ("--no-helper", "status"),
    ("--patience", "5", "status"),
    ("admin", "--help"),
    ("login", "--help"),
    ("completion", "--help"),
    ("no-such-command",),
    ("submit", "--hold", "/dev/fd/0"),
    ("logs", "-f", "99999"),
    ("slurm", "squeue"),
)


def plain(text: str) -> str:
    """Without numbers, which grow from call to call."""
    return re.sub(r"[\d:.]+|  +|-{2,}", "N", text)


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_both_ways_say_the_same(front: FrontDlq, words: tuple[str, ...]) -> None:
    started = front.alone()
    fast = front.dlq(*words, given="")
    assert front.alone() == started, "no interpreter started"
    slow = front.dlq(*words, given="", **ALONE)
    assert front.alone() == started + 1
    assert (fast.returncode, plain(fast.stdout), plain(fast.stderr)) == (
        slow.returncode, plain(slow.stdout), plain(slow.stderr)
    )  # fmt: skip


@pytest.mark.parametrize("words", FOR_THEMSELVES, ids=" ".join)
def test_others_run_in_an_interpreter_of_their_own(front: FrontDlq, words: tuple[str, ...]) -> None:
    started = front.alone()
    front.dlq(*words)
    assert front.alone() == started + 1


def test_the_names_of_slurm_ask_the_same_server(front: FrontDlq) -> None:
    servers = front.servers()
    assert front.dlq("status").returncode == 0
    assert front.said("squeue").returncode == 0
    assert front.server() in servers
    assert len(list(front.run_dir.glob("*.sock"))) == 1


def test_a_shell_completes_through_it(front: FrontDlq) -> None:
    started = front.alone()
    asked = {"_DLQ_COMPLETE": "bash_complete", "COMP_WORDS": "dlq submit --gp", "COMP_CWORD": "2"}
    fast = front.dlq(**asked)
    assert "--gpus" in fast.stdout
    assert front.alone() == started
    assert front.dlq(**asked, **ALONE).stdout == fast.stdout


def test_a_job_of_run_has_stdin_and_gives_its_exit_code(front: FrontDlq) -> None:
    started = front.alone()
    done = front.dlq("run", "--", "sh", "-c", "cat; exit 7", given="through\n")
    assert (done.returncode, done.stdout) == (7, "through\n")
    assert front.alone() == started


def test_a_question_is_asked_on_the_terminal_and_answered_there(front: FrontDlq) -> None:
    job = front.dlq("submit", "--parsable", "--", "sleep", "1000").stdout.strip()
    wait_until(
        lambda: "running" in front.dlq("status", job, "--json").stdout.lower(),
        what="it runs", timeout_s=60,
    )  # fmt: skip
    started = front.alone()
    for keys, ended in (("n\n", False), ("y\n", True)):
        words = ["setsid", "--ctty", "--wait", str(front.own / "dlq"), "pause", job]
        with Terminal(words, front.environment) as terminal:
            terminal.expect("[y/N]")
            terminal.press(keys)
            terminal.end()
        states = front.dlq("status", job, "--json").stdout
        assert ("paus" in states.lower()) == ended
    assert front.alone() == started
    front.dlq("cancel", job, "-y")


def test_without_its_interpreter_it_says_which_program_is_missing(front: FrontDlq) -> None:
    (front.own / PLAIN).rename(front.root / "hidden")
    try:
        done = front.dlq("login")
        assert done.returncode == 127
        assert PLAIN in done.stderr
    finally:
        (front.root / "hidden").rename(front.own / PLAIN)


def test_a_login_starts_the_helper_for_the_calls_after_it(front: FrontDlq) -> None:
    front.end()
    wait_until(lambda: not front.servers(), what="the helper is gone", timeout_s=30)
    for tried in front.run_dir.glob("*.tried"):
        tried.unlink()
    assert front.dlq("login").returncode == 0
    wait_until(lambda: len(front.servers()) >= 4, what="there is another one", timeout_s=60)
    started = front.alone()
    assert front.dlq("status").returncode == 0
    assert front.alone() == started


def test_it_hands_a_job_over_and_finds_it_by_its_global_name(front: FrontDlq) -> None:
    home = Path(front.environment["DLQ_HOME"])
    (home / "clusters.toml").write_text('[clusters.lab]\nhome = "."\n')
    started = front.alone()
    words = ("submit", "--to", "any", "--within", "30s", "--hold", "--parsable", "--", "true")
    name = front.dlq(*words).stdout.strip()
    assert name.startswith("lab:")
    assert front.dlq("why", name).stdout.startswith(f"Job {name.removeprefix('lab:')} ")
    assert front.alone() == started


@pytest.fixture
def short() -> Iterator[Path]:
    """The address of a socket has 108 characters: not below pytest's own directories."""
    root = Path(tempfile.mkdtemp(prefix="dlqfo", dir="/tmp"))
    yield root
    shutil.rmtree(root)


def test_the_helper_starts_when_the_first_call_has_ended(short: Path) -> None:
    (short / "x").mkdir(mode=0o700)
    shutil.copy(FRONT, short / "dlq")
    log = short / "log"
    slow = f'[ "$2" != serve ] && sleep 0.2\nprintf "%s " "$*" >> {log}\n'
    (short / PLAIN).write_text(f"#!/bin/sh\n{slow}")
    (short / PLAIN).chmod(0o755)
    environment = {"PATH": f"{short}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(short / "x")}
    # Were the helper to hold the output of the call, this would wait for its end.
    subprocess.run([short / "dlq", "status"], env=environment, check=True, capture_output=True)
    wait_until(lambda: "serve" in log.read_text(), what="the helper starts", timeout_s=60)
    assert log.read_text().startswith("status slurm serve ")
