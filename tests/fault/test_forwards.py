"""`dlq forward` on real daemons, some of which die meanwhile."""

import os
import re
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from support.echo_jobs import connected, echoed, echoing, job_with_port
from support.harness import BIN, Daemons
from support.pair_daemons import PairDaemons
from support.postgres_site import PostgresServer, postgres_site
from support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long("integration/test_forward_program.py")]


@pytest.fixture(scope="module", params=["relay", "off"])
def daemons(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs, with a relay beside the master and without."""
    listen = "127.0.0.1:0" if request.param == "relay" else "off"
    settings = f'[relay]\nlisten = "{listen}"\n'
    made = Daemons(tmp_path_factory.mktemp("forwards"), ("n1",), settings=settings)
    with made.up():
        yield made


# Answers once, and writes down how the connection ended.
HALF = """
import socket, sys
from pathlib import Path
listening = socket.create_server(("127.0.0.1", 0))
print("port", listening.getsockname()[1], flush=True)
line, _ = listening.accept()
line.recv(64)
line.sendall(b"half of an answer")
try:
    how = "more" if line.recv(64) else "ended"
except ConnectionResetError:
    how = "reset"
Path(sys.argv[1]).write_text(how)
"""


@contextmanager
def forwarded(
    daemons: Daemons, job_id: str, port: int, *more: str
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A `dlq forward` that is ready, and its local port."""
    words = (str(BIN / "dlq"), "forward", *more, job_id, f"{port}:0")
    with daemons.begun(*words, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60.0)
        assert ready, "it says nothing"
        found = re.match(rb"127\.0\.0\.1:(\d+) -> port", process.stdout.readline())
        assert found
        yield process, int(found[1])


def is_reset(line: socket.socket) -> bool:
    """Whether it ends as a broken one does, so that nobody takes what came for all there was."""
    try:
        while line.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    return False


def filled(line: socket.socket) -> int:
    """Write until nothing more is taken; how many bytes that was."""
    line.settimeout(0.5)
    written = 0
    try:
        while True:
            written += line.send(bytes(1 << 16))
    except TimeoutError:
        return written


def resident_bytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_two_hundred_connections_at_once_and_none_loses_a_byte(daemons: Daemons) -> None:
    data = [os.urandom(20_000) for _ in range(200)]
    with echoing(daemons) as (job_id, port), forwarded(daemons, job_id, port) as (_, local):
        lines = [connected(local) for _ in data]
        back: list[bytes] = [b""] * len(data)

        def talk(number: int) -> None:
            back[number] = echoed(lines[number], data[number])

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(len(data))]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60.0)
        for line in lines:
            line.close()
    assert back == data


def test_a_connection_goes_on_when_the_master_is_restarted(daemons: Daemons) -> None:
    with (
        echoing(daemons) as (job_id, port),
        forwarded(daemons, job_id, port) as (_, local),
        connected(local) as line,
    ):
        assert echoed(line, b"before") == b"before"
        daemons.kill("master")
        during = os.urandom(3 << 20)
        sender = threading.Thread(target=line.sendall, args=(during,))
        sender.start()
        daemons.start("master")
        daemons.wait_for("master")
        back = bytearray()
        while len(back) < len(during):
            back += line.recv(1 << 20)
        sender.join(60.0)
        assert bytes(back) == during


def test_a_restart_of_the_agent_is_told_and_the_job_goes_on(daemons: Daemons) -> None:
    with echoing(daemons) as (job_id, port), forwarded(daemons, job_id, port) as (process, local):
        with connected(local) as line:
            assert echoed(line, b"before") == b"before"
            daemons.kill("n1")
            daemons.start("n1")
            daemons.wait_for("n1")
            assert is_reset(line), "it is cut, and has not ended"
        assert process.wait(timeout=60.0) == 69
        with forwarded(daemons, job_id, port) as (_, again), connected(again) as line:
            assert echoed(line, b"after") == b"after"


def test_it_ends_with_the_job_and_says_so(daemons: Daemons) -> None:
    with echoing(daemons) as (job_id, port), forwarded(daemons, job_id, port) as (process, _):
        daemons.said("cancel", "--kill", job_id)
        assert process.wait(timeout=60.0) != 0
        assert process.stderr is not None
        assert b"rank has ended" in process.stderr.read()


def test_ctrl_c_ends_it_and_not_the_job(daemons: Daemons) -> None:
    with echoing(daemons) as (job_id, port), forwarded(daemons, job_id, port) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60.0) == 130
        assert "running" in daemons.said("status", job_id)


def test_a_port_of_the_host_is_refused_in_words(daemons: Daemons) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        echoing(daemons) as (job_id, _),
        forwarded(daemons, job_id, own.getsockname()[1]) as (process, local),
        connected(local) as line,
    ):
        assert is_reset(line)
        assert process.stderr is not None
        assert b"no process of this job holds it" in process.stderr.readline()


def test_words_that_are_no_ports_and_a_taken_port(daemons: Daemons) -> None:
    others = ("127.0.0.1:80", "169.254.169.254:80", "169.254.169.254", "[fe80::1]:80", "n2:8888")
    for words in ("http", "0", "70000", "80:70000", *others):
        refused = daemons.dlq("forward", "1", words)
        assert refused.code == 2, words
        assert "port" in refused.err, words
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        echoing(daemons) as (job_id, port),
    ):
        done = daemons.dlq("forward", job_id, f"{port}:{own.getsockname()[1]}")
    assert done.code != 0
    assert "cannot be used" in done.err


# ---- which way the bytes go


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master with a relay, and one node."""
    settings = '[relay]\nlisten = "127.0.0.1:0"\n'
    made = Daemons(tmp_path_factory.mktemp("relayed"), ("n1",), settings=settings)
    with made.up():
        yield made


def said(process: "subprocess.Popen[bytes]") -> bytes:
    """Its next word for people."""
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], 60.0)
    assert ready, "it says nothing"
    return process.stderr.readline()


def relay_of(daemons: Daemons, master: str = "master") -> psutil.Process:
    (found,) = (
        each
        for each in psutil.Process(daemons.pid(master)).children()
        if "dlq_master.relay.program" in each.cmdline()
    )
    return found


def test_the_bytes_go_through_the_relay_and_not_through_the_master(relayed: Daemons) -> None:
    with (
        echoing(relayed) as (job_id, port),
        forwarded(relayed, job_id, port, "--verbose") as (process, local),
    ):
        assert b"through the relay" in said(process)
        with connected(local) as line:
            data = os.urandom(4 << 20)
            assert echoed(line, data) == data
            relay = relay_of(relayed)
            relay.suspend()
            line.sendall(b"stands still")
            assert not select.select([line], [], [], 0.5)[0], "only the relay brings them"
            relay.resume()
            assert line.recv(64) == b"stands still"


def test_many_that_read_nothing_slow_no_other_and_cost_no_more_than_their_windows(
    relayed: Daemons,
) -> None:
    """A program in the job that sends, and a client that does not read, hold a window each."""
    slow, others = 20, 180
    with (
        ExitStack() as stack,
        echoing(relayed) as (job_id, port),
        forwarded(relayed, job_id, port, "--verbose") as (process, local),
    ):
        assert b"through the relay" in said(process)
        held = {
            "agent": psutil.Process(relayed.pid("n1")),
            "relay": relay_of(relayed),
            "client": psutil.Process(process.pid),
        }
        before = {name: resident_bytes(each) for name, each in held.items()}
        for _ in range(slow):
            assert filled(stack.enter_context(connected(local))) < 64 << 20
        data = [os.urandom(20_000) for _ in range(others)]
        lines = [stack.enter_context(connected(local)) for _ in data]
        back = [echoed(line, sent) for line, sent in zip(lines, data, strict=True)]
        grown = {name: resident_bytes(each) - before[name] for name, each in held.items()}
        assert back == data
    assert grown["client"] < (slow * 2 + 32) << 20, grown
    assert grown["agent"] < 24 << 20, grown
    assert grown["relay"] < 8 << 20, grown


def test_a_port_of_the_host_is_refused_by_the_relay_too(relayed: Daemons) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        echoing(relayed) as (job_id, _),
        forwarded(relayed, job_id, own.getsockname()[1], "--verbose") as (process, local),
    ):
        assert b"through the relay" in said(process)
        with connected(local) as line:
            assert is_reset(line)
        assert b"no process of this job holds it" in said(process)


def test_a_client_that_is_killed_leaves_no_whole_answer_and_no_whole_input(
    relayed: Daemons, tmp_path: Path
) -> None:
    """Programs at both sides that read to the end of a connection hear that it is broken."""
    note = tmp_path / "note"
    with (
        job_with_port(relayed, HALF, str(note)) as (job_id, port),
        forwarded(relayed, job_id, port) as (process, local),
        connected(local) as line,
    ):
        line.sendall(b"half of an input")
        assert line.recv(64) == b"half of an answer"
        process.kill()
        assert is_reset(line)
        wait_until(note.exists, what="the end of the job's connection", timeout_s=60.0)
        wait_until(lambda: note.read_text() == "reset", what="a reset", timeout_s=60.0)


def test_a_connection_goes_on_when_the_relay_is_killed(relayed: Daemons) -> None:
    with (
        echoing(relayed) as (job_id, port),
        forwarded(relayed, job_id, port, "--verbose") as (process, local),
        connected(local) as line,
    ):
        assert b"through the relay" in said(process)
        during = os.urandom(8 << 20)
        sender = threading.Thread(target=line.sendall, args=(during,))
        sender.start()
        back = bytearray(line.recv(1 << 20))
        relay_of(relayed).kill()
        while len(back) < len(during):
            back += line.recv(1 << 20)
        sender.join(60.0)
        assert bytes(back) == during
        assert b"through the master" in said(process)


def test_a_relay_that_cannot_be_reached_is_done_without(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = f'[relay]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n'
        daemons = Daemons(tmp_path_factory.mktemp("taken"), ("n1",), settings=settings)
        with (
            daemons.up(),
            echoing(daemons) as (job_id, port),
            forwarded(daemons, job_id, port, "--verbose") as (process, local),
            connected(local) as line,
        ):
            assert b"through the master" in said(process)
            assert echoed(line, b"all the same") == b"all the same"


def test_a_client_that_is_killed_takes_its_command_along(relayed: Daemons) -> None:
    with (
        echoing(relayed) as (job_id, port),
        forwarded(relayed, job_id, port, "--verbose") as (process, _),
    ):
        assert b"through the relay" in said(process)
        over = relayed.log("n1").count("exec_over")
        process.kill()
        wait_until(
            lambda: relayed.log("n1").count("exec_over") > over,
            what="the command's end",
            timeout_s=90.0,
        )


# ---- another master


def test_a_forward_goes_on_when_the_master_is_replaced_by_another_release(
    relayed: Daemons,
) -> None:
    """An upgrade stops the master in order, and starts its next program. The relay goes along."""
    with (
        echoing(relayed) as (job_id, port),
        forwarded(relayed, job_id, port, "--verbose") as (process, local),
        connected(local) as line,
    ):
        assert b"through the relay" in said(process)
        assert echoed(line, b"before") == b"before"
        former = relay_of(relayed)
        relayed.stop("master")
        wait_until(lambda: not former.is_running(), what="the end of the former relay")
        during = os.urandom(3 << 20)
        sender = threading.Thread(target=line.sendall, args=(during,))
        sender.start()
        relayed.start("master")
        relayed.wait_for("master")
        back = bytearray()
        while len(back) < len(during):
            back += line.recv(1 << 20)
        sender.join(60.0)
        assert bytes(back) == during
        assert b"through the master: the line through the relay is cut" in said(process)


class RelayedPair(PairDaemons):
    """Two masters, each with a relay of its own while it leads."""

    def __init__(self, root: Path, server: PostgresServer) -> None:
        super().__init__(root, server)
        self._settings += '[relay]\nlisten = "127.0.0.1:0"\n'


def test_a_takeover_loses_no_byte_and_new_forwards_go_through_the_new_leaders_relay(
    tmp_path: Path,
) -> None:
    with postgres_site() as site, RelayedPair(tmp_path, site.primary).up() as daemons:
        assert isinstance(daemons, PairDaemons)
        daemons.start_standby()
        with (
            echoing(daemons) as (job_id, port),
            forwarded(daemons, job_id, port, "--verbose") as (process, local),
            connected(local) as line,
        ):
            assert b"through the relay" in said(process)
            assert echoed(line, b"before") == b"before"
            daemons.kill("master")
            data = os.urandom(1 << 20)
            assert echoed(line, data) == data
            assert daemons.leads("master2")
            assert b"through the master: " in said(process)
            wait_until(
                lambda: daemons.dlq("exec", job_id, "true").code == 0,
                what="the agent at the new leader",
                timeout_s=60.0,
            )
            with forwarded(daemons, job_id, port, "--verbose") as (second, again):
                assert b"through the relay" in said(second)
                assert relay_of(daemons, "master2").is_running()
                with connected(again) as other:
                    assert echoed(other, data) == data
