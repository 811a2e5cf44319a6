"""Bytes and latency through `dlq forward`, and what they cost each process; bytes by ssh and shell.

    python -m benchmarks.commands.forwards [--mb N] [--rounds N] [--without-relay] [--json]

A real master and agent over loopback. A job sends or takes bytes at a port, one connection alone
and many at once. The same client speaks to the job's port directly, in turns: that is the floor.
The CPU time of each process is told for each MB. `dlq shell` and `dlq ssh` carry bytes too, of the
stdin and stdout of a command. Goals: at least 200 MB/s, at most 5 ms more for a round trip, and 200
connections at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks.support.conditions import percentile
from benchmarks.support.living import BIN, Living, cpu_s
from benchmarks.support.report import Report

MB = 1_000_000
PIECE = bytes(256 * 1024)
ROUND_TRIPS = 200
AT_ONCE = 200

# The first byte says what a connection is for: bytes out, bytes in, or echoes.
SERVER = """
import socket, sys, threading
piece = bytes(256 * 1024)
def serve(line):
    kind = line.recv(1)
    if kind == b"o":
        left = int.from_bytes(line.recv(8, socket.MSG_WAITALL), "big")
        while left:
            left -= line.send(piece[:left])
    elif kind == b"i":
        while line.recv(1 << 20):
            pass
        line.sendall(b"!")
    else:
        while data := line.recv(65536):
            line.sendall(data)
    line.close()
listening = socket.create_server(("127.0.0.1", 0), backlog=300)
with open(sys.argv[1] + ".new", "w") as note:
    note.write(str(listening.getsockname()[1]))
import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    line, _ = listening.accept()
    threading.Thread(target=serve, args=(line,), daemon=True).start()
"""


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=200, help="of each copy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-relay", action="store_true", help="all through the master")
    report = Report.begin("commands.forwards", parser)
    listen = "off" if report.options.without_relay else "127.0.0.1:0"
    settings = f'[relay]\nlisten = "{listen}"\n'
    with tempfile.TemporaryDirectory() as directory, Living(Path(directory), settings) as living:
        agent = living.start_agent("n1", "fake:8xH100-80GB")
        with _forwarded(living) as (client, direct, local):
            pids = {"master": living.master.pid, "agent": agent.pid, "client": client.pid}
            if not report.options.without_relay:
                pids["relay"] = _relay_pid(living.master.pid)
            for way in ("out", "in"):
                _tell_copies(report, way, direct, local, pids)
            _tell_round_trips(report, direct, local)
            _tell_many(report, local)
        for name in ("shell", "ssh"):
            _tell_command(report, living, name)
    report.end()


@contextmanager
def _forwarded(living: Living) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A client that forwards, the port of the job, and the local port."""
    note = living.root / "port"
    words = (sys.executable, "-c", SERVER, str(note))
    living.run("dlq", "submit", "--parsable", "-G", "1", "-J", "served", "--", *words)
    while not note.exists():
        time.sleep(0.02)
    port = int(note.read_text())
    command = [str(BIN / "dlq-python"), "forward", "-v", "served", f"{port}:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=living.environment, stdout=pipe, stderr=pipe) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        line = client.stdout.readline().decode()
        if 'listen = "off"' not in living.config.read_text():
            print(client.stderr.readline().decode().strip(), file=sys.stderr)
        try:
            yield client, port, int(line.split()[0].rpartition(":")[2])
        finally:
            client.terminate()


def _copy(port: int, way: str, size: int) -> float:
    """Seconds for so many bytes."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        begin_s = time.perf_counter()
        if way == "out":
            line.sendall(b"o" + size.to_bytes(8, "big"))
            left = size
            while left:
                left -= len(line.recv(1 << 20))
        else:
            line.sendall(b"i")
            for at in range(0, size, len(PIECE)):
                line.sendall(PIECE[: size - at])
            line.shutdown(socket.SHUT_WR)
            line.recv(1)
        return time.perf_counter() - begin_s


def _tell_copies(report: Report, way: str, direct: int, local: int, pids: dict[str, int]) -> None:
    size, rounds = report.options.mb * MB, report.options.rounds
    known = {**pids, "program in the job": _inside_pid(pids["agent"])}
    floors, took = [], []
    used = dict.fromkeys(known, 0.0)
    for _ in range(rounds):
        floors.append(_copy(direct, way, size))
        before = {name: cpu_s(pid) for name, pid in known.items()}
        took.append(_copy(local, way, size))
        for name, pid in known.items():
            used[name] += cpu_s(pid) - before[name]
    words = "out of a job" if way == "out" else "into a job"
    floor = size / MB / percentile(floors, 0.5)
    report.figure(f"bytes {words}, directly, median", floor, "MB/s")
    report.figure(
        f"bytes {words}, forwarded, median", size / MB / percentile(took, 0.5), "MB/s",
        at_least=200, note=f"{rounds} copies of {report.options.mb} MB",
    )  # fmt: skip
    for name, seconds in used.items():
        each = 1e3 * seconds / (rounds * report.options.mb)
        report.figure(f"bytes {words}: CPU of the {name}", each, "ms/MB")


def _tell_command(report: Report, living: Living, name: str) -> None:
    """Bytes of the stdout and of the stdin of a command inside, beyond its start."""
    if name == "ssh" and not all(shutil.which(word) for word in ("ssh", "sshd")):
        report.figure("bytes by dlq ssh", 0.0, "MB/s", note="not run: no OpenSSH here")
        return
    size, rounds = report.options.mb * MB, report.options.rounds
    took: dict[str, list[float]] = {"out of": [], "into": []}
    for _ in range(rounds):
        took["out of"].append(_command_out(living, name, size))
        took["into"].append(_command_in(living, name, size))
    for way, seconds in took.items():
        report.figure(
            f"bytes {way} a job, by dlq {name}, median", size / MB / percentile(seconds, 0.5),
            "MB/s", at_least=200, note=f"{rounds} copies of {report.options.mb} MB",
        )  # fmt: skip


@contextmanager
def _command(living: Living, name: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command inside that has said its first line."""
    words = [str(BIN / "dlq-python"), name, "served", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, 0, env=living.environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"begun\n":  # unbuffered: the rest stays in the pipe
            raise SystemExit(f"dlq {name} has not begun")
        yield process


def _command_out(living: Living, name: str, size: int) -> float:
    with _command(living, name, f"echo begun; head -c {size} /dev/zero") as process:
        assert process.stdout is not None
        begin_s, left = time.perf_counter(), size
        while left and (piece := os.read(process.stdout.fileno(), 1 << 20)):
            left -= len(piece)
        took_s = time.perf_counter() - begin_s
    if left:
        raise SystemExit(f"dlq {name} lacks {left} bytes")
    return took_s


def _command_in(living: Living, name: str, size: int) -> float:
    with _command(living, name, "echo begun; wc -c") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        begin_s = time.perf_counter()
        for at in range(0, size, len(PIECE)):
            process.stdin.write(PIECE[: size - at])
        process.stdin.close()
        came = int(process.stdout.readline())
        took_s = time.perf_counter() - begin_s
    if came != size:
        raise SystemExit(f"dlq {name} has brought {came} bytes")
    return took_s


def _relay_pid(master: int) -> int:
    for each in psutil.Process(master).children():
        if "dlq_master.relay.program" in each.cmdline():
            return each.pid
    raise SystemExit("the master has no relay")


def _inside_pid(agent: int) -> int:
    """The program of the forward in the job."""
    for each in psutil.Process(agent).children(recursive=True):
        if each.cmdline()[-1:] == ["forward"] and "dlq-init" in each.cmdline()[0]:
            return each.pid
    raise SystemExit("the forward has no program in the job")


def _round_trips(port: int) -> list[float]:
    took = []
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(b"e")
        for _ in range(ROUND_TRIPS):
            begin_s = time.perf_counter()
            line.sendall(b"x")
            line.recv(1)
            took.append(time.perf_counter() - begin_s)
    return took


def _tell_round_trips(report: Report, direct: int, local: int) -> None:
    floors, took = _round_trips(direct), _round_trips(local)
    added_ms = 1e3 * (percentile(took, 0.5) - percentile(floors, 0.5))
    report.figure("a round trip, beyond the direct one, p50", added_ms, "ms", at_most=5)
    report.figure("a round trip, p99", 1e3 * percentile(took, 0.99), "ms")


def _tell_many(report: Report, local: int) -> None:
    """All are open at once, and each gets its own bytes back."""
    good: list[bool] = []

    def talk(line: socket.socket) -> None:
        data, back = os.urandom(20_000), bytearray()
        line.sendall(b"e" + data)
        while len(back) < len(data) and (piece := line.recv(1 << 16)):
            back += piece
        good.append(bytes(back) == data)

    with ExitStack() as stack:
        begin_s = time.perf_counter()
        lines = [
            stack.enter_context(socket.create_connection(("127.0.0.1", local)))
            for _ in range(AT_ONCE)
        ]
        threads = [threading.Thread(target=talk, args=(line,)) for line in lines]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        took_s = time.perf_counter() - begin_s
    report.figure("connections at once that got their own bytes", sum(good), "", at_least=AT_ONCE)
    report.figure("seconds for all of them, 20 KB each way", took_s, "s")


if __name__ == "__main__":
    main()
