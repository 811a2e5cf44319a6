"""`dlq-init forward`, the end of `dlq forward` inside a job, as a program."""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlq_client.inside.forward import Frame, Frames
from dlq_nodeagent.shim.binary import INIT_NAME, ensure_program

pytestmark = pytest.mark.integration
PROGRAM = str(ensure_program(INIT_NAME))
HEAD = struct.Struct("!cII")
WINDOW = 1024 * 1024
OURS = {"DLQ_JOB_ID": "17", "DLQ_ATTEMPT": "1"}

# Listens on a free port, says which, and answers every connection with its bytes.
ECHO = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listening = socket.socket(family)
if sys.argv[2] == "beside":
    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
listening.bind((sys.argv[1], int(sys.argv[3])))
listening.listen(300)
print(listening.getsockname()[1], flush=True)
if sys.argv[2] != "deaf":
    while True:
        line, _ = listening.accept()
        while data := line.recv(65536):
            line.sendall(data)
        line.close()
else:
    kept = []
    while True:
        kept.append(listening.accept())  # and never reads
"""


# Of seccomp: socket(AF_NETLINK, ...) has the error EAFNOSUPPORT, all else is allowed.
NETLINK, REFUSED, ALLOWED = 16, 0x0005_0000 | 97, 0x7FFF_0000
SOCKET_CALLS = {"x86_64": 41, "aarch64": 198}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22
LIBC = ctypes.CDLL(None)


def without_netlink() -> None:
    """This process, and those that it becomes."""
    loads, jumps, returns = 0x20, 0x15, 0x06
    steps = [
        (loads, 0, 0, 0),  # the number of the call
        (jumps, 0, 3, SOCKET_CALLS[platform.machine()]),
        (loads, 0, 0, 16),  # its first argument
        (jumps, 0, 1, NETLINK),
        (returns, 0, 0, REFUSED),
        (returns, 0, 0, ALLOWED),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert LIBC.prctl(PR_SET_SECCOMP, 2, program) == 0


both = pytest.mark.parametrize(
    "line",
    [
        "asked",
        pytest.param(
            "tables",
            marks=pytest.mark.skipif(
                platform.machine() not in SOCKET_CALLS, reason="its system calls are not known here"
            ),
        ),
    ],
    indirect=True,
)


@contextmanager
def listening(
    address: str = "127.0.0.1",
    kind: str = "echo",
    variables: dict[str, str] = OURS,
    port: int = 0,
) -> Iterator[int]:
    """The port of a program of a job."""
    words = [sys.executable, "-c", ECHO, address, kind, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=variables) as program:
        assert program.stdout is not None
        try:
            yield int(program.stdout.readline())
        finally:
            program.kill()


class Line:
    """Speaks with the program as a client does."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        self._in, self._out = program.stdin, program.stdout
        self._program = program
        self._frames = Frames()
        self._come: list[Frame] = []

    def say(self, letter: bytes, stream: int, number: int = 0, data: bytes = b"") -> None:
        left = memoryview(HEAD.pack(letter, stream, len(data) if data else number) + data)
        while left:
            left = left[self._in.write(left) :]

    def next(self) -> Frame:
        while not self._come:
            ready, _, _ = select.select([self._out], [], [], 60.0)
            assert ready, "it says nothing"
            data = os.read(self._out.fileno(), 65536)
            assert data, "it has ended"
            self._come = self._frames.of(data)
        return self._come.pop(0)

    def bytes_of(self, stream: int, count: int) -> bytes:
        """So many bytes of a connection, credited at once; credits of theirs are skipped."""
        data = b""
        while len(data) < count:
            frame = self.next()
            assert frame.letter in b"kdw", frame
            if frame.letter == b"d" and frame.stream == stream:
                data += frame.data
                self.say(b"w", stream, len(frame.data))
        return data

    def kill(self) -> None:
        self._program.kill()

    def is_over(self) -> bool:
        self._in.close()
        return self._program.wait(timeout=60.0) == 0


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    """With the parameter "tables" the kernel does not let the program ask who listens."""
    words = [PROGRAM, "forward"]
    if getattr(request, "param", "") == "tables":
        # Not between fork and exec: threads of gRPC may run in this process.
        words = [sys.executable, __file__, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=OURS, bufsize=0) as program:
        made = Line(program)
        assert made.next() == Frame(b"h", 0, WINDOW)
        yield made
        program.kill()


@both
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_bytes_pass_both_ways_and_each_end_is_told(line: Line, address: str) -> None:
    with listening(address) as port:
        line.say(b"o", 1, port)
        assert line.next() == Frame(b"k", 1, 0)
        line.say(b"d", 1, data=b"hello")
        assert line.next() == Frame(b"d", 1, 5, b"hello")
        line.say(b"e", 1)
        assert line.next() == Frame(b"e", 1, 0)
        assert line.is_over()


def test_bytes_may_be_said_before_the_connection_is_made(line: Line) -> None:
    with listening() as port:
        line.say(b"o", 1, port)
        line.say(b"d", 1, data=b"early")
        assert [line.next().letter, line.next().data] == [b"k", b"early"]


@both
def test_a_port_of_another_program_is_refused(line: Line) -> None:
    another = {**OURS, "DLQ_JOB_ID": "18"}
    with listening(variables=another) as port, listening(variables={}) as hosts:
        for stream, each in ((1, port), (2, hosts)):
            line.say(b"o", stream, each)
            frame = line.next()
            assert (frame.letter, frame.stream) == (b"r", stream)
            assert b"no process of this job" in frame.data


def test_a_program_that_has_lost_its_environment_is_of_the_job_that_started_it(line: Line) -> None:
    echo = f'exec 3>&1; env -i "{sys.executable}" -c "$0" 127.0.0.1 echo 0 >&3 & wait'
    with subprocess.Popen(
        ["/bin/sh", "-c", echo, ECHO], stdout=subprocess.PIPE, env=OURS, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        try:
            line.say(b"o", 1, int(shell.stdout.readline()))
            assert line.next() == Frame(b"k", 1, 0)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@both
def test_a_port_of_ipv6_alone_never_leads_to_another_programs_port_of_ipv4(line: Line) -> None:
    with listening(kind="deaf", variables={}) as port, listening("::", "beside", port=port):
        line.say(b"o", 1, port)
        assert line.next() == Frame(b"k", 1, 0)
        line.say(b"d", 1, data=b"hello")
        assert line.next() == Frame(b"d", 1, 5, b"hello")


@both
def test_a_closed_port_and_one_of_another_address_are_refused(line: Line) -> None:
    with listening("127.0.0.2") as port:
        for stream, each in ((1, port), (2, 0), (3, 70_000)):
            line.say(b"o", stream, each)
            frame = line.next()
            assert frame.letter == b"r"
            assert b"nothing listens" in frame.data


def test_a_connection_that_nobody_reads_stops_no_other(line: Line) -> None:
    piece = b"x" * 32_768
    with listening(kind="deaf") as deaf, listening() as port:
        line.say(b"o", 1, deaf)
        for _ in range(WINDOW // len(piece)):
            line.say(b"d", 1, data=piece)
        line.say(b"o", 2, port)
        line.say(b"d", 2, data=b"alive")
        assert line.bytes_of(2, 5) == b"alive"


def test_more_than_a_window_ends_that_connection_alone(line: Line) -> None:
    piece = b"x" * 32_768
    with listening(kind="deaf") as deaf, listening() as port:
        line.say(b"o", 1, deaf)
        assert line.next().letter == b"k"
        for _ in range(16 * 1024 * 1024 // len(piece)):
            line.say(b"d", 1, data=piece)
        letters: list[bytes] = []
        while not letters or letters[-1] != b"x":
            letters.append(line.next().letter)
        assert set(letters) <= {b"w", b"x"}
        line.say(b"o", 2, port)
        assert line.next() == Frame(b"k", 2, 0)


def test_many_bytes_pass_through_small_windows(line: Line) -> None:
    data = os.urandom(3 * WINDOW)
    with listening() as port:
        line.say(b"o", 1, port)
        assert line.next().letter == b"k"
        back = b""
        for at in range(0, len(data), 32_768):
            line.say(b"d", 1, data=data[at : at + 32_768])
            back += line.bytes_of(1, 32_768)
    assert back == data


def test_two_hundred_at_once(line: Line) -> None:
    with listening(kind="deaf") as port:
        for stream in range(1, 201):
            line.say(b"o", stream, port)
        assert {line.next() for _ in range(200)} == {
            Frame(b"k", stream, 0) for stream in range(1, 201)
        }


def test_too_many_are_refused_and_one_that_ends_makes_room(line: Line) -> None:
    with listening(kind="deaf") as port:
        for stream in range(1, 258):
            line.say(b"o", stream, port)
        frames = [line.next() for _ in range(257)]
        refused = [frame for frame in frames if frame.letter == b"r"]
        assert [frame.stream for frame in refused] == [257]
        assert b"too many" in refused[0].data
        line.say(b"x", 1)
        line.say(b"o", 258, port)
        assert line.next() == Frame(b"k", 258, 0)


def test_a_program_that_ends_resets_its_connections(line: Line) -> None:
    with listening(kind="deaf") as port:
        line.say(b"o", 1, port)
        assert line.next().letter == b"k"
        line.say(b"d", 1, data=b"unread")
    assert line.next().letter in (b"x", b"e")


# Says how its only connection ended. With a word it has little room, and reads when it is told to.
ENDS = """
import socket, sys
listening = socket.socket()
if sys.argv[1:]:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listening.bind(("127.0.0.1", 0))
listening.listen()
print(listening.getsockname()[1], flush=True)
line, _ = listening.accept()
if sys.argv[1:]:
    sys.stdin.readline()
had = 0
try:
    while data := line.recv(65536):
        had += len(data)
    print("whole", had, flush=True)
except ConnectionResetError:
    print("reset", flush=True)
"""


@pytest.mark.parametrize("how", ["broken off", "client gone", "killed"])
def test_an_input_that_is_cut_is_no_whole_one(line: Line, how: str) -> None:
    with reading() as (program, port):
        assert program.stdout is not None
        line.say(b"o", 1, port)
        assert line.next().letter == b"k"
        line.say(b"d", 1, data=b"half")
        if how == "broken off":
            line.say(b"x", 1)
        elif how == "client gone":
            assert line.is_over()
        else:
            line.kill()
        assert program.stdout.readline() == b"reset\n"


def test_an_input_that_has_ended_is_a_whole_one_whatever_comes_then(line: Line) -> None:
    """Also where the kernel still has most of it when the line ends."""
    size = 300_000
    with reading("late") as (program, port):
        assert program.stdin is not None
        assert program.stdout is not None
        line.say(b"o", 1, port)
        assert line.next().letter == b"k"
        for _ in range(3):
            line.say(b"d", 1, data=bytes(size // 3))
        line.say(b"e", 1)
        for stream in (2, 3):  # two rounds later it has said the end
            line.say(b"o", stream, 0)
            while line.next().letter != b"r":
                pass
        line.kill()
        program.stdin.write(b"now\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"whole %d\n" % size


@contextmanager
def reading(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program of the job, and its port."""
    pipe = subprocess.PIPE
    python = [sys.executable, "-c", ENDS, *words]
    with subprocess.Popen(python, stdin=pipe, stdout=pipe, env=OURS) as program:
        assert program.stdout is not None
        try:
            yield program, int(program.stdout.readline())
        finally:
            program.kill()


@pytest.mark.parametrize("garbage", [b"z" + bytes(8), b"d" + b"\xff" * 8])
def test_bytes_that_are_no_frames_end_it(garbage: bytes) -> None:
    with subprocess.Popen(
        [PROGRAM, "forward"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        program.stdin.write(garbage)
        program.stdin.flush()
        assert program.wait(timeout=60.0) == 0


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    said = HEAD.pack(b"d", 1, 3) + b"abc" + HEAD.pack(b"e", 1, 0) + HEAD.pack(b"r", 2, 2) + b"no"
    frames = Frames()
    found = [frame for at in range(len(said)) for frame in frames.of(said[at : at + 1])]
    assert found == [Frame(b"d", 1, 3, b"abc"), Frame(b"e", 1, 0), Frame(b"r", 2, 2, b"no")]


def test_other_bytes_are_no_frames() -> None:
    with pytest.raises(ValueError, match="does not speak"):
        Frames().of(b"q" + bytes(8))


def test_a_socket_of_ours_is_not_the_jobs(line: Line) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        line.say(b"o", 1, own.getsockname()[1])
        assert line.next().letter == b"r"


if __name__ == "__main__":
    without_netlink()
    os.execv(sys.argv[1], sys.argv[1:])
