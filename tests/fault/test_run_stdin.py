"""`dlq run` with a stdin and with a terminal, on real daemons: clients, lines and daemons die."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_client.line.identity import load_identity, save_identity
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.serving import read_authority
from support.cutting_proxy import CuttingProxy
from support.harness import BIN, Daemons
from support.sessions import Session, interrupt
from support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long("unit/cli/interactive/test_piped.py")]
DEADLINE_S = 60.0
DLQ = str(BIN / "dlq")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master that waits 8 s for clients, and two nodes with eight virtual GPUs each."""
    made = Daemons(tmp_path_factory.mktemp("stdin"), ("n1", "n2"), settings='attend_silence = "8s"')
    with made.up():
        yield made


def run(daemons: Daemons, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return daemons.ran(DLQ, "run", "-G", "1", *words, stdin=stdin, timeout_s=DEADLINE_S)


def begun(daemons: Daemons, *words: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return daemons.begun(DLQ, "run", "-G", "1", *words, stdin=subprocess.PIPE)


def state(daemons: Daemons, name: str) -> str:
    from dlq_cli.words import shown_state
    from dlq_client.jobs import Jobs

    with daemons.connect() as line:
        found = [job for job in Jobs(line).list(user="*").jobs if job.name == name]
    return shown_state(found[-1]) if found else ""


def until(daemons: Daemons, name: str, *wanted: str) -> None:
    wait_until(
        lambda: state(daemons, name) in wanted, what=f"{name} is {wanted}", timeout_s=DEADLINE_S
    )


def test_what_is_piped_in_comes_out(daemons: Daemons) -> None:
    done = run(daemons, "--", "cat", stdin=b"x\n")
    assert (done.returncode, done.stdout) == (0, b"x\n")


def test_ten_megabytes_arrive_whole_and_end(daemons: Daemons) -> None:
    data = random.Random(1).randbytes(10 << 20)
    done = run(daemons, "--", "sha256sum", stdin=data)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_program_that_reads_nothing_slows_the_producer_down(daemons: Daemons) -> None:
    with begun(daemons, "-J", "slow", "--", "sleep", "1000") as client:
        assert client.stdin is not None
        out = client.stdin.fileno()
        os.set_blocking(out, False)
        until(daemons, "slow", "running")
        waits = taken = 0
        while waits < 20:
            try:
                taken += os.write(out, b"y" * 65536)
                waits = 0
            except BlockingIOError:
                waits += 1
                time.sleep(0.1)
        assert taken < 4 << 20
        daemons.said("cancel", "--kill", "slow")


def test_a_program_that_reads_no_more_ends_all_the_same(daemons: Daemons) -> None:
    done = run(daemons, "--", "sh", "-c", "head -c1; exec 0<&-; exit 3", stdin=b"y" * (8 << 20))
    assert (done.returncode, done.stdout) == (3, b"y")


@pytest.mark.parametrize("words", [["--no-stdin"], ["-"]])
def test_a_job_without_our_stdin_has_an_empty_one(daemons: Daemons, words: list[str]) -> None:
    end = words if words == ["-"] else [*words, "--", "sh", "-c", "cat; echo over"]
    done = run(daemons, *end, stdin=b"#!/bin/sh\ncat\necho over\n")
    assert (done.returncode, done.stdout) == (0, b"over\n")


def test_output_files_and_variables_go_with_a_stdin(daemons: Daemons) -> None:
    path = daemons.root / "out"
    done = run(daemons, "-o", str(path), "--", "sh", "-c", "cat; echo $DLQ_JOB_ID", stdin=b"in\n")
    assert done.returncode == 0
    assert path.read_bytes() == done.stdout
    assert done.stdout.startswith(b"in\n")


def test_one_rank_and_one_task_get_it(daemons: Daemons) -> None:
    script = 'cat > "$0.$DLQ_NODE_RANK.$LOCAL_RANK"'
    words = ("-N", "2", "--gpus-per-node", "2", "--launch", "per-gpu", "--", "sh", "-c", script)
    at = str(daemons.root / "gang")
    done = daemons.ran(DLQ, "run", *words, at, stdin=b"mine\n", timeout_s=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_bytes() for path in daemons.root.glob("gang.*")}
    assert found == {"gang.0.0": b"mine\n", "gang.0.1": b"", "gang.1.0": b"", "gang.1.1": b""}


def test_a_job_that_has_read_ends_with_its_client(daemons: Daemons) -> None:
    with begun(daemons, "-J", "tied", "--", "sh", "-c", "read x; echo $x; cat") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        client.kill()
        until(daemons, "tied", "cancelled")
    assert "client_gone" in daemons.said("events", "--json", "tied")


def test_a_job_that_has_read_nothing_outlives_its_client(daemons: Daemons) -> None:
    with begun(daemons, "-J", "free", "--", "sh", "-c", "echo up; exec sleep 1000") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
    # A second one that has read comes and goes in the silence in which the first would have ended.
    with begun(daemons, "-J", "after", "--", "sh", "-c", "read x; echo $x; cat") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
    until(daemons, "after", "cancelled")
    assert state(daemons, "free") == "running"
    daemons.said("cancel", "--kill", "free")


def test_a_job_that_has_read_is_never_run_again(daemons: Daemons) -> None:
    with begun(daemons, "-J", "once", "--", "sh", "-c", "read x; echo $x; cat") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        daemons.said("requeue", "-y", "once")
        assert client.wait(DEADLINE_S) != 0
    assert state(daemons, "once") == "failed"


def test_a_job_that_has_read_nothing_is_run_again_and_gets_all(daemons: Daemons) -> None:
    with begun(daemons, "-J", "twice", "--", "sh", "-c", "echo $DLQ_ATTEMPT; cat") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == b"1\n"
        daemons.said("requeue", "-y", "twice")
        assert client.stdout.readline() == b"2\n"
        out, _ = client.communicate(b"all of it\n", timeout=DEADLINE_S)
        assert (client.returncode, out) == (0, b"all of it\n")


@pytest.mark.parametrize("which", ["master", "n1"])
def test_a_restart_in_the_middle_loses_and_repeats_nothing(daemons: Daemons, which: str) -> None:
    data = random.Random(2).randbytes(6 << 20)
    half = len(data) // 2
    words = ("-w", "n1", "--", "sh", "-c", "head -c 1; echo; cat | sha256sum")
    with begun(daemons, *words) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"." + data[:half])
        client.stdin.flush()
        assert client.stdout.readline() == b".\n"
        daemons.kill(which)
        daemons.start(which)
        daemons.wait_for(which)
        out, err = client.communicate(data[half:], timeout=DEADLINE_S)
    assert out.split()[0].decode() == hashlib.sha256(data).hexdigest(), err


def test_a_line_that_is_cut_often_loses_and_repeats_nothing(daemons: Daemons) -> None:
    data = random.Random(3).randbytes(4 << 20)
    with cut_often(daemons, 4) as (proxy, home):
        done = as_another(daemons, home, "run", "-G", "1", "--", "sha256sum", stdin=data)
        assert proxy.cuts > 0
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest(), done.stderr


@contextmanager
def cut_often(daemons: Daemons, seed: int) -> Iterator[tuple[CuttingProxy, Path]]:
    """An identity directory of the same user whose line to the master is cut often."""
    home = daemons.root / f"cut-home-{seed}"
    shutil.copytree(daemons.root / "home", home)
    with CuttingProxy(daemons.api, share=0.05, seed=seed).running() as proxy:
        for path in home.rglob("*"):
            if path.is_file() and daemons.api in (text := path.read_text(errors="replace")):
                path.write_text(text.replace(daemons.api, proxy.address))
        yield proxy, home


def as_another(
    daemons: Daemons, home: Path, *words: str, stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    """With the identity of this directory."""
    return subprocess.run(
        [DLQ, *words],
        env=daemons.environment() | {"DLQ_HOME": str(home)},
        input=stdin,
        capture_output=True,
        timeout=3 * DEADLINE_S,
        cwd="/tmp",
    )


# ---- a terminal


def terminal(daemons: Daemons, *words: str) -> Session:
    return Session(daemons.environment(), DLQ, "run", "-G", "1", "--pty", "--env", "PS1=$ ", *words)


def test_a_shell_has_the_window_takes_ctrl_c_and_gives_its_code(daemons: Daemons) -> None:
    session = terminal(daemons, "--", "sh")
    session.resize(101, 41)
    before = session.mode()
    session.expect("$ ")
    session.resize(102, 42)
    session.press("until stty size | grep '42 102'; do sleep 0.1; done; tty; echo $TERM\n")
    session.expect("\n42 102\n/dev/pts/")
    session.expect("\nxterm\n")
    interrupt(session)
    session.press("exit 6\n")
    assert session.end() == 6
    assert session.last_mode == before


def test_a_cancel_ends_a_shell(daemons: Daemons) -> None:
    session = terminal(daemons, "-J", "shell", "--", "sh")
    session.expect("$ ")
    daemons.said("cancel", "shell")
    assert session.end() == 1
    assert state(daemons, "shell") == "cancelled"


@pytest.mark.parametrize("which", ["master", "n1"])
def test_a_terminal_comes_back_after_a_restart(daemons: Daemons, which: str) -> None:
    session = terminal(daemons, "-w", "n1", "--", "sh")
    session.expect("$ ")
    session.press("word=kept; echo set\n")
    session.expect("\nset\n")
    daemons.kill(which)
    daemons.start(which)
    daemons.wait_for(which)
    session.expect("comes back to it")
    session.press_until("echo $word now\n", "kept now\n")
    session.press("exit 5\n")
    assert session.end() == 5


def test_a_terminal_whose_client_is_killed_ends(daemons: Daemons) -> None:
    session = terminal(daemons, "-J", "alone", "--", "sh")
    session.expect("$ ")
    os.kill(session.pid, signal.SIGKILL)
    assert session.end() == -signal.SIGKILL
    until(daemons, "alone", "cancelled")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_client_that_is_told_to_end_leaves_its_terminal_as_it_was(
    daemons: Daemons, number: signal.Signals
) -> None:
    session = terminal(daemons, "-J", number.name, "--", "sh")
    before = session.mode()
    session.expect("$ ")
    assert session.mode() != before
    os.kill(session.pid, number)
    assert session.end() == -number
    assert session.last_mode == before
    until(daemons, number.name, "cancelled")


def test_the_word_about_its_stdin_is_in_json(daemons: Daemons) -> None:
    done = run(daemons, "-J", "worded", "--", "cat", stdin=b"x\n")
    assert done.returncode == 0
    (shown,) = json.loads(daemons.said("show", "--json", "worded"))["jobs"]
    assert shown["spec"]["stdin"] == "pipe"


def test_what_a_terminal_showed_is_in_the_logs(daemons: Daemons) -> None:
    session = terminal(daemons, "-J", "logged", "--", "sh", "-c", "echo shown; exit 0")
    assert session.end() == 0
    assert "shown" in session.shown
    assert "shown" in daemons.said("logs", "logged")


def test_a_terminal_needs_one_here(daemons: Daemons) -> None:
    done = run(daemons, "--pty", "--", "true")
    assert done.returncode == 2
    assert b"--pty needs a terminal" in done.stderr


def attached(daemons: Daemons, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return daemons.begun(DLQ, "attach", "--stdin", name, stdin=subprocess.PIPE)


def test_attach_brings_its_stdin_and_a_second_writer_is_refused(daemons: Daemons) -> None:
    daemons.said("submit", "--stdin", "-G", "1", "-J", "open", "--", "sh", "-c", "sleep 1; cat")
    until(daemons, "open", "running")
    with attached(daemons, "open") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        other = daemons.ran(DLQ, "attach", "--stdin", "open", stdin=b"two\n", timeout_s=DEADLINE_S)
        assert other.returncode != 0
        assert b"another client writes to its stdin" in other.stderr
        out, err = client.communicate(b"three\n", timeout=DEADLINE_S)
        assert (client.returncode, out) == (0, b"three\n"), err


def test_attach_over_a_line_that_is_cut_often_loses_and_repeats_nothing(daemons: Daemons) -> None:
    data = random.Random(5).randbytes(4 << 20)
    daemons.said("submit", "--stdin", "-G", "1", "-J", "cut", "--", "sha256sum")
    until(daemons, "cut", "running")
    with cut_often(daemons, 6) as (proxy, home):
        done = as_another(daemons, home, "attach", "--stdin", "cut", stdin=data)
        assert proxy.cuts > 0
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest(), done.stderr


@pytest.mark.parametrize("role", [Role.USER, Role.OPERATOR])
def test_another_user_brings_nothing_to_a_job(daemons: Daemons, role: Role) -> None:
    name = f"stranger-{role}"
    home = home_of(daemons, name, role)
    job = f"mine-{role}"
    said = daemons.said("submit", "--parsable", "--stdin", "-G", "1", "-J", job, "--", "cat")
    until(daemons, job, "running")
    job_id = said.strip()
    refused = as_another(daemons, home, "attach", "--stdin", job_id, stdin=b"evil\n")
    assert refused.returncode not in (0, 69), refused
    assert refused.stderr.strip()
    assert b"Traceback" not in refused.stderr
    with attached(daemons, job) as client:
        out, err = client.communicate(b"own\n", timeout=DEADLINE_S)
    assert (client.returncode, out) == (0, b"own\n"), err


def home_of(daemons: Daemons, name: str, role: Role) -> Path:
    """An identity directory of another user."""
    uid = str(4_700 + len(name))
    daemons.said("admin", "user", "set", name, "--role", str(role), "--uid", uid, "--gid", uid)
    own = load_identity(daemons.root / "home")
    assert own is not None
    made = new_key_and_csr(name)
    authority = read_authority(daemons.root / "master", "torture")
    signed = authority.sign_user(made.request, name, role, time.time())
    home = daemons.root / name
    save_identity(home, replace(own, key=made.key, certificate=signed, user=name, role=role.value))
    return home


def test_attach_to_a_job_without_a_stdin_says_how_to_get_one(daemons: Daemons) -> None:
    daemons.said("submit", "-G", "1", "-J", "shut", "--", "sleep", "1000")
    refused = daemons.ran(DLQ, "attach", "--stdin", "shut", stdin=b"", timeout_s=DEADLINE_S)
    assert refused.returncode != 0
    assert b"the stdin of job" in refused.stderr
    assert b"dlq submit --stdin" in refused.stderr
    daemons.said("cancel", "-y", "shut")


def test_a_writer_whose_master_restarts_loses_and_doubles_no_byte(daemons: Daemons) -> None:
    words = ("-J", "sum", "--", "sh", "-c", "sleep 1; head -c 1; echo; cat | sha256sum")
    daemons.said("submit", "--stdin", "-G", "1", *words)
    until(daemons, "sum", "running")
    data = random.Random(2).randbytes(4 << 20)
    with attached(daemons, "sum") as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"." + data[: 1 << 20])
        client.stdin.flush()
        assert client.stdout.readline() == b".\n", "from here on its output is followed"
        daemons.kill("master")
        daemons.start("master")
        out, err = client.communicate(data[1 << 20 :], timeout=DEADLINE_S)
    assert out, err
    assert out.split()[0].decode() == hashlib.sha256(data).hexdigest(), err
    assert client.returncode == 0


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_run_that_waits_over_a_restart_of_the_master_says_so_and_gets_its_start(
    daemons: Daemons, flags: tuple[str, ...]
) -> None:
    daemons.said("submit", "-J", "full", "-G", "16", "--", "sleep", "600")
    until(daemons, "full", "running")
    words = (*flags, "--no-stdin", "-J", "patient", "--", "echo", "its turn")
    with begun(daemons, *words) as client:
        assert client.stderr is not None
        told = b""
        while b"its output follows when it runs" not in told:
            told += client.stderr.readline()
        daemons.kill("master")
        while b"still trying" not in told:  # in words, while nobody answers
            told += client.stderr.readline()
        assert client.poll() is None
        daemons.start("master")
        daemons.wait_for("master")
        assert state(daemons, "patient") == "queued"
        daemons.said("cancel", "-y", "--kill", "-n", "full")
        out, err = client.communicate(timeout=DEADLINE_S)
    assert (out, client.returncode) == (b"its turn\n", 0), told + err
    if flags:
        assert all(isinstance(json.loads(line), dict) for line in (told + err).splitlines())
    else:
        assert (told + err).count(b"still trying") == 1
