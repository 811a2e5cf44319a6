"""A command inside a job, by the relay and through the master, when one of those it needs ends.

Each end is told in words. Nothing that the command has started is left in the job.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from support.harness import BIN, HERE, Daemons
from support.process_box import is_alive
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/nodeagent/execs/test_relay_dialling.py"),
]
# The command, a child of it, and one that has left its session and its group.
SCRIPT = """
setsid sh -c 'trap "" HUP TERM; sleep 1000' & outside=$!
sleep 1000 & child=$!
echo $$ $child $outside
echo unheard >&2
wait
"""


class RelayedSite(Daemons):
    """A master and one node. `relayed`: whether there is a relay."""

    def __init__(self, root: Path, relayed: bool) -> None:
        listen = "127.0.0.1:0" if relayed else "off"
        super().__init__(root, ("n1",), settings=f'[relay]\nlisten = "{listen}"\n')
        self.relayed = relayed

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(HERE.parent)}

    @contextmanager
    def command(self, job_id: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
        """Through the relay, where there is one, as `dlq ssh` has it; else by `dlq exec`."""
        words = [str(BIN / "dlq"), "exec", job_id, "--"]
        if self.relayed:
            words = [sys.executable, "-m", "support.bulky_client", job_id]
        with self.begun(*words, "sh", "-c", script, stdin=subprocess.PIPE) as process:
            yield process

    @contextmanager
    def begun_command(self) -> Iterator[tuple[str, subprocess.Popen[bytes], list[int]]]:
        """A job, a command in it, and the processes of that."""
        asked = ("submit", "--parsable", "-G", "1", "--", "sleep", "1000")
        job_id = self.said(*asked).strip()
        self.said("wait", "--for", "running", "--timeout", "60s", job_id)
        try:
            with self.command(job_id, SCRIPT) as process:
                pids = [int(each) for each in line_of(process.stdout).split()]
                assert all(map(is_alive, pids))
                if self.relayed:
                    said = b""
                    while b"bytes go through the relay" not in said:
                        said = line_of(process.stderr)
                yield job_id, process, pids
        finally:
            self.dlq("cancel", "--kill", job_id)


@pytest.fixture(scope="module", params=[True, False], ids=["relay", "master"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RelayedSite]:
    with RelayedSite(tmp_path_factory.mktemp("commands"), request.param).up() as made:
        assert isinstance(made, RelayedSite)
        yield made


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], 60.0)
    assert ready, "it says nothing"
    return stream.readline()


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Its exit code, and what it said."""
    _, err = process.communicate(timeout=90.0)
    return process.returncode, err


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of all", timeout_s=90.0)


def restarted(site: RelayedSite, how: Callable[[str], None]) -> None:
    how("n1")
    site.start("n1")
    site.wait_for("n1")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_end_of_the_agent_ends_it(site: RelayedSite, how: str) -> None:
    with site.begun_command() as (job_id, process, pids):
        restarted(site, getattr(site, how))
        code, err = end(process)
        assert code == 69, err
        assert b"command" in err.splitlines()[-1], err
        gone(pids)
        assert "running" in site.said("status", job_id)


def test_the_end_of_the_job_ends_it(site: RelayedSite) -> None:
    with site.begun_command() as (job_id, process, pids):
        site.said("cancel", "--kill", job_id)
        code, err = end(process)
        assert code == 128 + signal.SIGKILL, err
        assert b"rank has ended" in err
        gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_client_ends_it(site: RelayedSite, number: signal.Signals) -> None:
    with site.begun_command() as (job_id, process, pids):
        process.send_signal(number)
        process.wait(60.0)
        gone(pids)
        assert "running" in site.said("status", job_id)


def test_a_client_that_stands_still_too_long_has_gone(site: RelayedSite) -> None:
    with site.begun_command() as (_, process, pids):
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not any(map(is_alive, pids)), what="the end", timeout_s=150.0)
        process.send_signal(signal.SIGCONT)
        code, err = end(process)
        assert code == 69, err
        assert err.strip(), "in words"


def test_it_goes_on_when_the_master_ends_and_another_one_comes(site: RelayedSite) -> None:
    with site.begun_command() as (_, process, pids):
        site.kill("master")
        site.start("master")
        site.wait_for("master")
        assert all(map(is_alive, pids))
        os.kill(pids[0], signal.SIGUSR1)
        code, err = end(process)
        assert code == 128 + signal.SIGUSR1, err
        gone(pids)


def test_a_client_that_dies_with_the_master_leaves_nothing(site: RelayedSite) -> None:
    with site.begun_command() as (_, process, pids):
        site.kill("master")
        process.kill()
        process.wait(60.0)
        site.start("master")
        site.wait_for("master")
        wait_until(lambda: not any(map(is_alive, pids)), what="the end", timeout_s=90.0)


def test_the_bytes_of_a_shell_without_a_terminal_go_by_the_relay(site: RelayedSite) -> None:
    """Both ways, whole; while the relay stands still they do too."""
    job_id = site.said("submit", "--parsable", "-G", "1", "--", "sleep", "1000").strip()
    site.said("wait", "--for", "running", "--timeout", "60s", job_id)
    try:
        words = (str(BIN / "dlq"), "shell", job_id, "cat")
        with site.begun(*words, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            say(process, b"begun")
            assert line_of(process.stdout) == b"begun\n"
            if site.relayed:
                # It begins through the master, and goes by the relay as soon as both are there.
                wait_until(lambda: stands_still_with_its_relay(site, process), what="it goes by it")
            data = os.urandom(8_000_000)
            back, err = process.communicate(data, timeout=90.0)
        assert (process.returncode, back == data) == (0, True), err
    finally:
        site.dlq("cancel", "--kill", job_id)


def say(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def stands_still_with_its_relay(site: RelayedSite, process: subprocess.Popen[bytes]) -> bool:
    """Whether a line comes back only once the relay goes on."""
    assert process.stdout is not None
    relays = relays_of(site)
    for relay in relays:
        relay.suspend()
    say(process, b"stands still")
    waits = not select.select([process.stdout], [], [], 0.5)[0]
    for relay in relays:
        relay.resume()
    assert line_of(process.stdout) == b"stands still\n"
    return waits and bool(relays)


def relays_of(site: RelayedSite) -> list[psutil.Process]:
    children = psutil.Process(site.pid("master")).children()
    return [one for one in children if "dlq_master.relay.program" in one.cmdline()]
