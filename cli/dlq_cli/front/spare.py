"""One process: it waits for a call, becomes like its caller, runs the command, and ends.

The command runs only when the caller has said "go" after our "ready". A caller that waited too long
has gone by then, on its slow way: no command runs twice, and none is lost.
"""

from __future__ import annotations

import io
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from dlq_cli import main as cli
from dlq_cli.exit_codes import INTERRUPTED
from dlq_cli.front.request import LIMITS, FrontRequest, NoRequest, peer_uid, receive
from dlq_compat import delegate
from dlq_compat import main as compat

READY, GO, SIGNAL, ENDED = b"R", b"G", b"S", b"X"
PATIENCE_S = 5.0
"""For a caller that connects and says nothing."""
_FLUSH_FAILED = 120  # the interpreter's own code


def serve_one(
    listening: socket.socket, ends: int, taken: Callable[[], None], fresh: Callable[[], bool]
) -> NoReturn:
    """Wait for a call, run it and end. `ends` can be read once the server has ended; `taken` tells
    it of the call; `fresh` says whether the files of dlq are those that are imported here.
    """
    line = _next_call(listening, ends)
    taken()
    listening.close()
    try:
        line.settimeout(PATIENCE_S)
        if peer_uid(line) != os.geteuid() or not fresh():
            os._exit(0)
        request = receive(line)
        line.sendall(READY)
        if line.recv(1) != GO:
            os._exit(0)
        line.settimeout(None)
    except (OSError, NoRequest):
        os._exit(0)
    _become(request)
    threading.Thread(target=_hear, args=(line,), daemon=True).start()
    code = _end_of(_run(request.words))
    try:
        line.sendall(ENDED + bytes([code & 0xFF]))
    finally:
        os._exit(code)


def _next_call(listening: socket.socket, ends: int) -> socket.socket:
    listening.setblocking(False)
    while True:
        ready, _, _ = select.select([listening.fileno(), ends], [], [])
        if ends in ready:
            os._exit(0)
        try:
            return listening.accept()[0]
        except BlockingIOError:
            continue  # the other spare took it


def _become(request: FrontRequest) -> None:
    """Take over descriptors, directory, environment, umask and limits of the caller."""
    for number, descriptor in enumerate(request.descriptors[:3]):
        os.dup2(descriptor, number)
    os.fchdir(request.descriptors[3])
    for descriptor in request.descriptors:
        os.close(descriptor)
    _take_environment(request.environment)
    time.tzset()
    os.umask(request.umask)
    for number in range(LIMITS):
        _, hard = resource.getrlimit(number)
        soft = request.limits[number]
        resource.setrlimit(number, (-1 if soft >= 1 << 63 else soft, hard))
    _open_streams()


def _take_environment(pairs: Sequence[bytes]) -> None:
    """Each variable as it was; of two with one name the first, which getenv finds."""
    os.environb.clear()
    for pair in pairs:
        name, equals, value = pair.partition(b"=")
        if equals and name and name not in os.environb:
            os.environb[name] = value


def _open_streams() -> None:
    """stdin, stdout and stderr, as the interpreter opens them when it starts."""
    spoken = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "C")
    lenient = "surrogateescape" if spoken in ("C", "POSIX") else "strict"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8", errors=lenient
    )
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = sys.__stdout__ = _writer(1, lenient, unbuffered or os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", True)  # type: ignore[misc]
    for stream, name in (
        (sys.stdin, "<stdin>"),
        (sys.stdout, "<stdout>"),
        (sys.stderr, "<stderr>"),
    ):
        stream.buffer.raw.name = name  # type: ignore[attr-defined]


def _writer(descriptor: int, errors: str, by_line: bool) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=by_line)


def _hear(line: socket.socket) -> None:
    """Signals for the command come from its caller; with the caller the command ends."""
    while True:
        try:
            word = line.recv(2)
        except OSError:
            word = b""
        if len(word) == 2 and word[:1] == SIGNAL:
            os.kill(os.getpid(), word[1])
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def _run(words: Sequence[bytes]) -> int:
    """The command, as `dlq_compat` runs it, up to where it would start `dlq`."""
    name, *arguments = (os.fsdecode(word) for word in words)
    delegate.dlq_here = _run_dlq
    sys.argv = ["dlq_compat", name, *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return compat.main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - the interpreter's own end of a program
        sys.excepthook(*sys.exc_info())
        return 1


def _run_dlq(name: str, arguments: list[str]) -> int:
    sys.argv = ["dlq", "slurm", name, *arguments]
    return cli.run(sys.argv[1:])


def _end_of(code: int) -> int:
    """Flush as the interpreter does when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        print(f"Exception ignored in: {sys.stdout!r}\n{kind}: {error}", file=sys.stderr)
        code = _FLUSH_FAILED
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        code = _FLUSH_FAILED
    return code
