"""One process: it waits for a call, becomes like its caller, runs the command, and waits again.

The command runs only when the caller has said "go" after our "ready". A caller that waited too long
has gone by then, on its slow way: no command runs twice, and none is lost.

A process takes the next call only where the last one left nothing behind (`_Ground`). It ends after
a signal or an exception, and where a thread, child, descriptor or handler stays. It also ends after
a long call, and after CALLS.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol

from dlq_cli import main as cli
from dlq_cli.app import called_by
from dlq_cli.exit_codes import INTERRUPTED
from dlq_cli.front.likeness import become, let_go
from dlq_cli.front.request import NoRequest, peer_pid, peer_uid, receive
from dlq_cli.interactive.terminal import STDIN_READER
from dlq_cli.leaving import end_of
from dlq_compat import delegate
from dlq_compat import main as compat

READY, GO, SIGNAL, ENDED = b"R", b"G", b"S", b"X"
PATIENCE_S = 5.0
"""For a caller that connects and says nothing."""
CALLS = 250
"""A process ends after so many: memory that commands leave behind does not add up."""
LONG_S = 2.0
"""After a longer call a process ends: the server has put another into its place."""
MORE_PAGES = 8_192
"""It ends once it has grown by so many, 32 MiB, as after a list of very many jobs."""
_DLQ = "dlq"
_PID = struct.Struct("=i")
_THREAD_ENDS_S = 0.5  # a thread that has given its result is at its end


class Employer(Protocol):
    """The server, as its spares see it."""

    def tell_taken(self) -> None:
        """This process has a call."""

    def tell_free(self) -> None:
        """It waits again."""

    def fresh(self) -> bool:
        """Whether the files of dlq are those that are imported here."""


def serve_calls(listening: socket.socket, ends: int, employer: Employer, calls: int) -> NoReturn:
    """Run up to so many calls, one after the other, and end. `ends` can be read once the server has
    ended.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    delegate.dlq_here = _run_dlq
    signal.signal(signal.SIGINT, signal.default_int_handler)
    next_call = _waiting(listening, ends)
    ground = _Ground()
    for left in reversed(range(calls)):
        line = next_call()
        employer.tell_taken()
        if not left:
            listening.close()
        begun_s = time.monotonic()
        clear = _serve(line, employer.fresh, null) and ground.is_clear(line)
        if not left or not clear or time.monotonic() - begun_s > LONG_S:
            break
        line.close()
        employer.tell_free()
    os._exit(0)


def _waiting(listening: socket.socket, ends: int) -> Callable[[], socket.socket]:
    """Waits for a call; of several processes that wait the kernel wakes one."""
    listening.setblocking(False)
    polled = select.epoll()
    polled.register(listening.fileno(), select.EPOLLIN | select.EPOLLEXCLUSIVE)
    polled.register(ends, select.EPOLLIN)

    def next_call() -> socket.socket:
        while True:
            if any(descriptor == ends for descriptor, _ in polled.poll()):
                os._exit(0)
            with suppress(BlockingIOError):  # another took it
                return listening.accept()[0]

    return next_call


def _serve(line: socket.socket, fresh: Callable[[], bool], null: int) -> bool:
    """Run one call; whether it left nothing behind that is known here."""
    try:
        line.settimeout(PATIENCE_S)
        if peer_uid(line) != os.geteuid() or not fresh():
            return False
        request = receive(line)
        line.sendall(READY + _PID.pack(os.getpid()))
        if line.recv(1) != GO:
            return False
        line.settimeout(None)
    except (OSError, NoRequest):
        return False
    limits = become(request)
    called_by(peer_pid(line))
    caller = _Caller(line)
    code, plain = _run(request.words)
    code, flushed = end_of(code)
    let_go(null, limits)
    return caller.answer(code) and plain and flushed


class _Caller:
    """The other end of a call that runs: it sends signals, and with it the command ends."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._over = self._signalled = False
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def answer(self, code: int) -> bool:
        """Tell the exit code. False when a signal had come: it may still be on its way here.

        The line stays open: a caller on a terminal waits for its end, when nobody here reads its
        keys any more.
        """
        with self._lock:
            self._over = True
        try:
            self._line.sendall(ENDED + bytes([code & 0xFF]))
            self._line.shutdown(socket.SHUT_RD)
            self._thread.join()
        except OSError:
            return False
        return not self._signalled

    def _hear(self) -> None:
        while True:
            try:
                word = self._line.recv(2)
            except OSError:
                word = b""
            with self._lock:
                if self._over:
                    return
                self._signalled = True
                known = len(word) == 2 and word[:1] == SIGNAL
                os.kill(os.getpid(), word[1] if known else signal.SIGKILL)


class _Ground:
    """The state of a process that may take a call."""

    def __init__(self) -> None:
        self._handlers = self._now_handled()
        self._descriptors = self._now_open()
        self._pages = self._now_held()

    def is_clear(self, line: socket.socket) -> bool:
        """Whether a call has left it as it was, but for its `line`."""
        return (
            self._handlers == self._now_handled()
            and _alone()
            and _childless()
            and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
            and self._now_held() - self._pages < MORE_PAGES
            and self._descriptors + 1 == self._now_open()
        )

    @staticmethod
    def _now_handled() -> list[object]:
        return [signal.getsignal(number) for number in range(1, signal.SIGSYS + 1)]

    @staticmethod
    def _now_held() -> int:
        """Pages in memory."""
        return int(Path("/proc/self/statm").read_text().split()[1])

    @staticmethod
    def _now_open() -> int:
        return len(os.listdir("/proc/self/fd"))


def _alone() -> bool:
    """Whether there is no other thread. One that still reads the caller's stdin is not waited for:
    it takes what is meant for the caller's next program.
    """
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            if thread.name == STDIN_READER:
                return False
            thread.join(_THREAD_ENDS_S)
            if thread.is_alive():
                return False
    return True


def _childless() -> bool:
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return False
    return True


def _run(words: Sequence[bytes]) -> tuple[int, bool]:
    """Run `dlq`, or a command of Slurm as `dlq_compat` does. Return its exit code, and whether it
    ended in an orderly way.
    """
    name, *arguments = (os.fsdecode(word) for word in words)
    sys.argv = [name, *arguments] if name == _DLQ else ["dlq_compat", name, *arguments]
    try:
        code = cli.run(arguments) if name == _DLQ else compat.main()
        return code, code != INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED, False
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0, False
        print(error.code, file=sys.stderr)
        return 1, False
    except BaseException:  # noqa: BLE001 - the interpreter's own end of a program
        sys.excepthook(*sys.exc_info())
        return 1, False


def _run_dlq(name: str, arguments: list[str]) -> int:
    sys.argv = ["dlq", "slurm", name, *arguments]
    return cli.run(sys.argv[1:])
