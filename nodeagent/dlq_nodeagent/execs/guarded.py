"""One command inside a rank: its guard process (shim/exec.c), its bytes, and how it ended."""

import asyncio
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dlq_nodeagent.model.port import Inside
from dlq_nodeagent.runtimes.process.shim_process import reap

# Numbers of the guard's descriptors; ours must be others, or posix_spawn would leave them
# close-on-exec.
_LEASH, _SHIM, _ABOVE = 3, 4, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended; all unset: unknown, because its guard was killed."""

    exit_code: int | None = None
    signal: int = 0
    error: str = ""
    """Why it never ran."""
    rank_ended: bool = False


class Guarded:
    """A started command. Everything of it is killed by `close`, or with this process."""

    def __init__(
        self, inside: Inside, *, size: tuple[int, int] | None, pipe_bytes: int = 0
    ) -> None:
        """Start it; `size` (columns, rows) gives it a terminal. `pipe_bytes`: its pipes hold so
        much, where the kernel allows it. OSError when this node cannot.
        """
        self._pipe_bytes = pipe_bytes
        self.stdin = self.stdout = self.stderr = -1
        self._pid = self._pidfd = -1
        self._leash: socket.socket | None = None
        theirs: list[int] = []
        try:
            theirs = self._make_descriptors(inside, size)
            self._start(inside, theirs)
        except OSError:
            self.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def has_terminal(self) -> bool:
        return self.stdin == self.stdout

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal, if there is one; the kernel notifies its programs."""
        if self.has_terminal and self.stdout >= 0:
            fcntl.ioctl(self.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        """Send the command's first process a signal, by its guard."""
        if self._leash is not None and number:
            with suppress(OSError):  # it has ended
                self._leash.send(bytes([number]))

    def close_stdin(self) -> None:
        """No more input. (A terminal's user sends Ctrl-D instead.)"""
        if not self.has_terminal and self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    async def wait(self) -> Ending:
        """How it ended, when it and all that it started has ended. Call once."""
        said = b""
        assert self._leash is not None
        while piece := await _read_leash(self._leash):
            said += piece
        await ended(self._pidfd)
        reap(self._pid)
        self._pid = -1
        return parse_ending(said.decode("utf-8", "replace"))

    def close(self) -> None:
        """Let go of everything; the guard kills remaining processes within moments."""
        if self._leash is not None:
            self._leash.close()
            self._leash = None
        for descriptor in {self.stdin, self.stdout, self.stderr} - {-1}:
            os.close(descriptor)
        self.stdin = self.stdout = self.stderr = -1

    async def reap(self) -> None:
        """After `close`, without a waiter for its end: leave no zombie behind."""
        if self._pidfd >= 0:
            if self._pid >= 0:
                await ended(self._pidfd)
                reap(self._pid)
                self._pid = -1
            os.close(self._pidfd)
            self._pidfd = -1

    def _make_descriptors(self, inside: Inside, size: tuple[int, int] | None) -> list[int]:
        """Ours go into this object; theirs are 0 to 4 in order."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mine.setblocking(False)
        self._leash = mine
        theirs = self._pipes() if size is None else self._terminal(inside, size)
        return [*theirs, its.detach(), os.dup(inside.shim_pidfd)]

    def _pipes(self) -> list[int]:
        read_in, self.stdin = os.pipe()
        self.stdout, write_out = os.pipe()
        self.stderr, write_err = os.pipe()
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)
            if self._pipe_bytes:
                with suppress(OSError):  # a user has only so much room in pipes
                    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, self._pipe_bytes)
        return [read_in, write_out, write_err]

    def _terminal(self, inside: Inside, size: tuple[int, int]) -> list[int]:
        master, slave = os.openpty()
        os.set_blocking(master, False)
        self.stdin = self.stdout = master
        if os.geteuid() == 0:
            # As a login does: programs open their terminal by its name.
            os.fchown(slave, inside.uid, -1)
            os.fchmod(slave, 0o600)
        self.resize(*size)
        return [slave, os.dup(slave), os.dup(slave)]

    def _start(self, inside: Inside, theirs: Sequence[int]) -> None:
        high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for each in theirs]
        try:
            actions = [(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(high)]
            argv = list(inside.argv)
            self._pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions)
        finally:
            for descriptor in high:
                os.close(descriptor)
        self._pidfd = os.pidfd_open(self._pid)


def parse_ending(said: str) -> Ending:
    """The guard's report, line by line; the last line counts."""
    lines = said.splitlines()
    word, _, rest = (lines[-1] if lines else "").partition(" ")
    match word:
        case "exit":
            return Ending(exit_code=int(rest))
        case "signal":
            return Ending(signal=int(rest))
        case "rank_ended":
            return Ending(rank_ended=True, signal=9)
        case "error":
            stage, _, rest = rest.partition(" ")
            number, _, words = rest.partition(" ")
            return _start_error(stage, int(number), words)
        case _:
            return Ending()


def _start_error(stage: str, number: int, words: str) -> Ending:
    """126 and 127 as in a shell, for the command's own fault."""
    if stage == "cgroup":
        return Ending(error="the rank has just ended", rank_ended=True)
    if stage in ("exec", "interpreter", "chdir"):
        code = 127 if stage == "exec" and os.strerror(number) == os.strerror(2) else 126
        return Ending(exit_code=code, error=words)
    return Ending(error=f"{words} ({stage})")


async def _read_leash(leash: socket.socket) -> bytes:
    try:
        return await read_some(leash.fileno())
    except (ConnectionResetError, OSError):
        return b""


PIECE_BYTES = 64 * 1024


async def read_some(
    descriptor: int, over: asyncio.Event | None = None, most_bytes: int = PIECE_BYTES
) -> bytes:
    """The next bytes, as soon as there are some. Empty at the end, or once all writers are dead
    (`over`) and nothing is left: another process may hold the other end open.

    A terminal ends with EIO once no process has it open any more.
    """
    while True:
        try:
            return os.read(descriptor, most_bytes)
        except BlockingIOError:
            if over is not None and over.is_set():
                return b""
            await _readable(descriptor, over)
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise


async def write_all(descriptor: int, data: bytes | memoryview) -> bool:
    """Put everything in, waiting while it is full. False: the reader is gone."""
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            await ready_for(descriptor, loop.add_writer, loop.remove_writer)
        except (BrokenPipeError, ConnectionResetError):
            return False
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise
    return True


async def ended(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    await ready_for(pidfd, loop.add_reader, loop.remove_reader)


async def _readable(descriptor: int, over: asyncio.Event | None) -> None:
    """Until there are bytes, or all writers are dead."""
    loop = asyncio.get_running_loop()
    if over is None:
        await ready_for(descriptor, loop.add_reader, loop.remove_reader)
        return
    watching = loop.create_task(over.wait())
    future: asyncio.Future[None] = loop.create_future()

    def ready(_: object = None) -> None:
        if not future.done():
            future.set_result(None)

    watching.add_done_callback(ready)
    loop.add_reader(descriptor, ready)
    try:
        await future
    finally:
        loop.remove_reader(descriptor)
        watching.cancel()


async def ready_for(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    """Wait by `add_reader` or `add_writer` of the loop."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    add(descriptor, ready)
    try:
        await future
    finally:
        remove(descriptor)
