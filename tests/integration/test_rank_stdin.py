"""`dlq-stdin`, the main process of a rank with a client's stdin or terminal, as a program."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from dlq_cli.interactive.rank_stdin import OTHER_WRITES, TAKEN_OVER, writing
from dlq_nodeagent.shim.binary import STDIN_NAME, ensure_program
from support.waiting import wait_until

pytestmark = pytest.mark.integration
PROGRAM = str(ensure_program(STDIN_NAME))
DATA, END, SIZE = b"d", b"e", b"s"


def frame(letter: bytes, body: bytes = b"") -> bytes:
    return letter + struct.pack("!I", len(body)) + body


@contextmanager
def rank(kind: str, at: Path, shell: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [PROGRAM, kind, str(at), "--", "/bin/sh", "-c", shell]
    with subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0) as process:
        wait_until(at.exists, what="its socket", timeout_s=60.0)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], socket.socket]]:
    """Comes to the socket; all that came are closed at the end."""
    with ExitStack() as stack:

        def came() -> socket.socket:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.settimeout(30.0)
            # It has its name before it listens.
            wait_until(lambda: _listens(made, tmp_path / "s"), what="it listens", timeout_s=60.0)
            return made

        yield came


Client = Callable[[], socket.socket]


def _listens(line: socket.socket, at: Path) -> bool:
    with suppress(ConnectionRefusedError):
        line.connect(str(at))
        return True
    return False


def heard(line: socket.socket, text: bytes) -> bytes:
    said = b""
    while text not in said:
        piece = line.recv(4096)
        assert piece, said
        said += piece
    return said


def test_a_client_that_comes_again_goes_on_where_bytes_were_taken(
    tmp_path: Path, client: Client
) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "cat; exit 3") as process:
        first = client()
        heard(first, b"taken 0\n")
        first.sendall(frame(DATA, b"abc") + frame(DATA, b"defgh")[:7])  # cut in a frame
        heard(first, b"taken 5\n")
        first.close()
        again = client()
        heard(again, b"taken 5\n")
        again.sendall(frame(DATA, b"fgh") + frame(END))
        heard(again, b"end\n")
        assert process.stdout is not None
        assert process.stdout.read() == b"abcdefgh"
        assert process.wait(60) == 3


def test_a_client_that_goes_is_no_end_of_the_input(tmp_path: Path, client: Client) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "cat; echo over") as process:
        gone = client()
        gone.sendall(frame(DATA, b"x"))
        heard(gone, b"taken 1\n")
        gone.shutdown(socket.SHUT_WR)
        gone.close()
        last = client()
        heard(last, b"taken 1\n")
        assert process.poll() is None
        last.sendall(frame(END))
        assert process.stdout is not None
        assert process.stdout.read() == b"xover\n"


def test_a_program_that_reads_no_more_is_told_and_its_bytes_count_as_taken(
    tmp_path: Path, client: Client
) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "exec 0<&-; sleep 1000"):
        line = client()
        line.sendall(frame(DATA, b"x" * 65536))
        heard(line, b"closed\n")


@pytest.mark.parametrize("junk", [b"\xff" * 64, frame(DATA, b"")[:1] + b"\xff" * 4, b"s\0\0\0\1"])
def test_junk_ends_its_client_and_nothing_else(tmp_path: Path, client: Client, junk: bytes) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "cat") as process:
        bad = client()
        bad.sendall(junk)
        with suppress(ConnectionResetError):
            while bad.recv(4096):
                pass
        good = client()
        good.sendall(frame(DATA, b"fine") + frame(END))
        assert process.stdout is not None
        assert process.stdout.read() == b"fine"


def test_signals_go_to_the_program_and_the_end_is_its_own(tmp_path: Path) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "trap 'exit 7' USR1; echo up; while :; do sleep 0.05; done") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGPIPE)  # about our own writes: it goes no further
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 7
    with rank("pipe", tmp_path / "t", "kill -TERM $$") as process:
        assert process.wait(60) == -signal.SIGTERM


def test_a_terminal_begins_with_its_client_and_waits_for_the_last_of_its_screen(
    tmp_path: Path, client: Client
) -> None:
    at = tmp_path / "s"
    with rank("terminal", at, "stty size; exec seq 5000") as process:
        line = client()
        time.sleep(0.1)
        line.sendall(frame(SIZE, struct.pack("!HH", 101, 41)))
        said = heard(line, b"\r\n5000\r\n")
        assert said.startswith(b"41 101\r\n")
        line.close()
        assert process.stdout is not None
        assert process.stdout.read() == said
        assert process.wait(60) == 0


def test_a_signal_ends_a_terminal_that_waits_for_its_client(tmp_path: Path) -> None:
    with rank("terminal", tmp_path / "s", "echo never") as process:
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_another_user_reaches_nobodys_stdin(tmp_path: Path, client: Client) -> None:
    at = tmp_path / "s"
    with rank("pipe", at, "cat") as process:
        at.chmod(0o777)  # as if its directory let others in
        for path in (tmp_path, *tmp_path.parents):
            path.chmod(path.stat().st_mode | 0o011)
        stranger = subprocess.run(
            [PROGRAM, "attach", str(at)],
            input=frame(DATA, b"evil"), capture_output=True, user=65534, timeout=60,
        )  # fmt: skip
        assert b"taken" not in stranger.stdout
        own = client()
        own.sendall(frame(END))
        assert process.stdout is not None
        assert process.stdout.read() == b""


def test_a_path_of_any_length_will_do(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    with rank("pipe", deep / "stdin", "cat") as process:
        done = subprocess.run(
            [PROGRAM, "attach", str(deep / "stdin")],
            input=frame(DATA, b"far") + frame(END), capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.stdout.endswith(b"end\n")
        assert process.stdout is not None
        assert process.stdout.read() == b"far"


@contextmanager
def writer(at: Path, token: str, *, again: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A client's way in, as an agent starts it inside the job."""
    words = writing(token, again=again)
    variables = {"DLQ_STDIN": PROGRAM, "DLQ_BEAT_FILE": str(at / "beat")}
    variables["PATH"] = os.environ["PATH"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=variables, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_one_writer_at_a_time_and_its_token_lets_it_come_again(tmp_path: Path) -> None:
    with rank("pipe", tmp_path / "stdin", "cat") as process:
        with writer(tmp_path, "a") as first:
            assert told(first) == b"taken 0\n"
            with writer(tmp_path, "b") as second:
                assert second.wait(60) == OTHER_WRITES
            assert first.stdin is not None
            first.stdin.write(frame(DATA, b"abc"))
            first.stdin.flush()
            assert told(first) == b"taken 3\n"
        with writer(tmp_path, "a", again=True) as first:  # its line was cut
            assert told(first) == b"taken 3\n"
        with writer(tmp_path, "b") as second:  # nobody has a line
            assert told(second) == b"taken 3\n"
            with writer(tmp_path, "a", again=True) as first:
                assert first.wait(60) == TAKEN_OVER
            assert second.stdin is not None
            second.stdin.write(frame(DATA, b"de") + frame(END))
            second.stdin.flush()
            assert process.stdout is not None
            assert process.stdout.read() == b"abcde"
