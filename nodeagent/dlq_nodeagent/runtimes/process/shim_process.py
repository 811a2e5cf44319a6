"""The shim seen from the agent: start it, recognise it after a restart, see that it has ended."""

import fcntl
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlq_nodeagent.runtimes.process import layout

PROC = Path("/proc")
_ANSWER_S = 10.0
_NEWS_BYTES = 65_536


class Launcher:
    """`dlq-shim serve`, a small process that forks shims: the agent's own start costs more, and
    would stop its loop. It leaves with the agent, and its shims go on. One that was killed is
    started again.
    """

    def __init__(self, shim: Path, news: int) -> None:
        """`news`: a descriptor to which a shim writes a byte when its start record is there."""
        self._shim = shim
        self._news = news
        self._socket: socket.socket | None = None
        self._pid = 0

    def start(self, attempt_dir: Path) -> int | None:
        """Start the shim of an attempt; a pidfd of it. None: whether one was started is not known,
        and the lock of the plan will tell. Raises OSError when none was.
        """
        self._send(str(attempt_dir).encode())
        assert self._socket is not None
        try:
            said, descriptors, _, _ = socket.recv_fds(self._socket, 4, 1)
        except OSError:
            self.close()
            return None
        if len(said) < 4:
            self.close()
            return None
        error = int.from_bytes(said, sys.byteorder)
        if error:
            raise OSError(error, os.strerror(error))
        os.set_inheritable(descriptors[0], False)
        return descriptors[0]

    def close(self) -> None:
        """End it; its shims go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _send(self, words: bytes) -> None:
        try:
            self._serving().send(words)
        except (BrokenPipeError, ConnectionResetError):  # it was killed before it took the order
            self.close()
            self._serving().send(words)

    def _serving(self) -> socket.socket:
        if self._socket is None:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                self._pid = spawn(self._shim, "serve", at_0=its.fileno(), at_1=self._news)
            ours.settimeout(_ANSWER_S)
            self._socket = ours
        return self._socket


def spawn(shim: Path, word: str | Path, *, at_0: int | None = None, at_1: int | None = None) -> int:
    """Start the shim's program and return its pid; it is our child until we end. `at_0` and
    `at_1`: descriptors of ours that it gets as its descriptors 0 and 1.

    posix_spawn: the agent never forks (a large agent would freeze, and gRPC must not be forked).
    """
    quiet: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 2 if at_0 is None else at_0, 0),
        (os.POSIX_SPAWN_DUP2, 2 if at_1 is None else at_1, 1),
    ]
    return os.posix_spawn(shim, [str(shim), str(word)], {}, file_actions=quiet)


def open_pidfd(pid: int, start_ticks: int | None) -> int | None:
    """A descriptor of the process that had this pid *and* this start time; None when it is gone.

    The start time is read after the descriptor is open, so a pid that is reused meanwhile shows.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if start_ticks is not None and read_start_ticks(pid) != start_ticks:
        os.close(pidfd)
        return None
    return pidfd


class Ends:
    """Tells by one descriptor that one of many shims has ended, or has started its main process;
    each of these once.
    """

    def __init__(self) -> None:
        self._ended: set[int] = set()
        self._watched: set[int] = set()
        self.starts = 0
        """How many starts `taken` has heard of."""
        self.looks = 0
        """How often it was called."""
        self._epoll = select.epoll()
        self._starts, self.news = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._starts, select.EPOLLIN)

    @property
    def descriptor(self) -> int:
        return self._epoll.fileno()

    def watch(self, pidfd: int) -> None:
        """Watch a shim until `forget`. A full kernel watches none."""
        with suppress(OSError):
            self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)
            self._watched.add(pidfd)

    def forget(self, pidfd: int) -> None:
        """Its pidfd is closed now: another may get its number."""
        self._watched.discard(pidfd)
        self._ended.discard(pidfd)

    def lives(self, pidfd: int | None) -> bool:
        """Whether a shim is watched and had not ended when `taken` was called last."""
        return pidfd in self._watched and pidfd not in self._ended

    def taken(self) -> None:
        """Somebody looks at all shims now: earlier words need not be repeated."""
        self.looks += 1
        told = {descriptor for descriptor, _ in self._epoll.poll(0)}
        if self._starts in told:
            told.remove(self._starts)
            self.starts += len(os.read(self._starts, _NEWS_BYTES))
        self._ended |= told

    def close(self) -> None:
        self._epoll.close()
        os.close(self._starts)
        os.close(self.news)


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended (a zombie has)."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def reap(pid: int) -> None:
    """Collect an ended child; nothing to do when it was another agent's child."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def read_start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: start time in clock ticks since boot. None: no such process."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


_MASKS = ("SigCgt", "SigIgn", "SigBlk")


def catches(pid: int, start_ticks: int, number: int) -> bool | None:
    """Whether the process catches or ignores a signal. None: it is gone, shows no masks, or blocks
    the signal now, as for sigwait and signalfd.
    """
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    if read_start_ticks(pid) != start_ticks:
        return None
    fields = dict(line.split()[:2] for line in lines if line.startswith("Sig"))
    masks = {name: int(fields[f"{name}:"], 16) for name in _MASKS if f"{name}:" in fields}
    bit = 1 << (number - 1)
    if len(masks) < len(_MASKS):
        return None
    borne = (masks["SigCgt"] | masks["SigIgn"]) & bit
    return True if borne else None if masks["SigBlk"] & bit else False


def session_pids(session_id: int, since_ticks: int) -> set[int]:
    """Processes of a session since then: a lost shim's remains without control groups."""
    found = set()
    for name in os.listdir(PROC):
        fields = _stat_fields(int(name)) if name.isdecimal() else None
        if fields is None or fields[0] == "Z":
            continue
        if int(fields[3]) == session_id and int(fields[19]) >= since_ticks:
            found.add(int(name))
    return found


class PlanLock:
    """A living shim holds it, so taking it proves that the shim is dead."""

    def __init__(self, at: int) -> None:
        self._descriptor = os.open(layout.PLAN, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)

    def take(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._descriptor)


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
