"""The process that keeps spares ready. It has no thread and no line to the master: it forks."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import importlib
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from dlq_cli.front import line, spare
from dlq_cli.front.login import LoginSession

SPARES = 2
"""One is being used while the next one waits. Both take call after call."""
IDLE_S = 600.0
LOOK_EVERY_S = 5.0
IN_USE_S = 60.0  # after a call; a server of another session may take over then
TAKE_OVER_S, TRY_EVERY_S = 20.0, 0.2
_PID = struct.Struct("=i")
_ROOMS = ("dlq", "dlq_cli", "dlq_client", "dlq_common", "dlq_compat")
# Heavy, and of use to other commands only.
_BY_GRPC = ("grpc._channel", "grpc._simple_stubs")  # gRPC's own, which it imports at a first use
_LATER = ("dlq_cli.commands.admin", "dlq_cli.doctor", "dlq_compat.front")


def serve(directory: Path, key: str) -> None:
    """Serve the callers that have this key until nobody calls; at once return when another process
    serves them. OSError when the directory is not ours alone.
    """
    found = directory.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(1, "not a directory of this user alone", str(directory))
    lock = os.open(directory / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.utime(lock)
        only = the_only_one(directory, key)
        if only is not None:
            import_all()
            CommandServer(directory, key, lock, only).run()


def the_only_one(directory: Path, key: str) -> int | None:
    """A lock that one server of this installation and directory has; None: another one keeps it.

    Each session of a login has a key of its own, and each server memory of its own. So the newest
    takes over from a server that nobody has called for a while. That ends when its socket is gone.
    """
    name = hashlib.sha256(sys.prefix.encode()).hexdigest()[:16]
    only = os.open(directory / f"{name}.only", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_s = time.monotonic() + TAKE_OVER_S
    while True:
        try:
            fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(only, 64, 0).decode(errors="replace")
            if time.monotonic() >= give_up_s or not _is_idle(directory, holder):
                os.close(only)
                return None
            (directory / f"{holder}.sock").unlink(missing_ok=True)
            time.sleep(TRY_EVERY_S)
        else:
            os.ftruncate(only, 0)
            os.pwrite(only, key.encode(), 0)
            return only


def _is_idle(directory: Path, key: str) -> bool:
    """Whether the server with this key has had no call for a while."""
    found = _stat(str(directory / f"{key}.lock"))
    return key.isalnum() and found is not None and time.time() - found.st_mtime > IN_USE_S


def import_all() -> None:
    """Import what any command may need: nothing is read from disk when a call has come."""
    gc.disable()  # hardly any of it is garbage, and each look costs more than the last
    for room in _ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not found.name.startswith(_LATER):
                importlib.import_module(found.name)
    for name in _BY_GRPC:
        importlib.import_module(name)


class CommandServer:
    """The socket, the spares that accept on it, and the process with the line to the master."""

    def __init__(self, directory: Path, key: str, lock: int, only: int) -> None:
        self._path = directory / f"{key}.sock"
        self._line_path = directory / f"{key}.line"
        self._files = _files()
        self._places = _places()
        self._login = LoginSession()
        self._spares: set[int] = set()
        self._single: set[int] = set()  # they wait for one call, where all spares have one
        self._busy_since_s: dict[int, float] = {}
        # Held by this process alone: they say that a server lives, with this key and with any.
        self._lock, self._only = lock, only
        self._ends, self._lives = os.pipe()
        self._hears, self._tells = os.pipe()
        os.set_blocking(self._hears, False)

    def run(self) -> None:
        """Serve until it is time to end; the socket is gone then."""
        # Before the first gRPC call of anybody: this process forks and never makes one.
        # It holds no end of ours: spares end when nobody holds `lives`, and it ends after them.
        keeper = line.start_keeper(
            self._line_path, self._lock, self._only, self._lives, self._hears
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        gc.collect()
        gc.freeze()  # spares share these pages
        gc.enable()
        listening = _listen(self._path)
        here = self._path.stat().st_ino
        try:
            self._keep(listening, here)
        finally:
            with suppress(OSError):
                if self._path.stat().st_ino == here:
                    self._path.unlink()
            listening.close()
            self._hear()  # a spare that has a call finishes it
            for pid in (self._spares | self._single) - self._busy_since_s.keys():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            keeper.close()

    def _keep(self, listening: socket.socket, here: int) -> None:
        last_s = time.monotonic()
        look_s = last_s
        while time.monotonic() - last_s < IDLE_S:
            if time.monotonic() >= look_s:
                if _inode(self._path) != here or self._files != _files():
                    return
                if self._login.is_over():
                    return
                look_s = time.monotonic() + LOOK_EVERY_S
            self._reap()
            self._fill(listening)
            select.select([self._hears], [], [], LOOK_EVERY_S)
            if self._hear():
                last_s = time.monotonic()
                os.utime(self._lock)  # it is in use

    def _fill(self, listening: socket.socket) -> None:
        now_s = time.monotonic()
        taken = {
            pid for pid, since_s in self._busy_since_s.items() if now_s - since_s > spare.LONG_S
        }
        self._spares -= taken
        while len(self._spares) < SPARES:
            self._spares.add(self._fork(listening, spare.CALLS))
        if not self._single and self._spares <= self._busy_since_s.keys():
            self._single.add(self._fork(listening, 1))

    def fresh(self) -> bool:
        """Whether dlq stands where it was imported from, as far as a call can afford to look. Files
        that were edited in place end the server a few seconds later.
        """
        return self._places == _places()

    def tell_taken(self) -> None:
        """In a spare: it has a call."""
        self._tell(os.getpid())

    def tell_free(self) -> None:
        """In a spare: it waits again."""
        self._tell(-os.getpid())

    def _tell(self, word: int) -> None:
        with suppress(BrokenPipeError):  # the server has ended
            os.write(self._tells, _PID.pack(word))

    def _fork(self, listening: socket.socket, calls: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for ours in (self._hears, self._lives, self._lock, self._only):
                os.close(ours)
            line.use(self._line_path)
            spare.serve_calls(listening, self._ends, self, calls)
        finally:
            os._exit(1)

    def _hear(self) -> bool:
        """Note the calls that spares have taken and ended; whether there were any."""
        heard = False
        with suppress(BlockingIOError):
            while raw := os.read(self._hears, _PID.size * 64):
                heard = True
                for (word,) in _PID.iter_unpack(raw):
                    self._note(word)
        return heard

    def _note(self, word: int) -> None:
        if word > 0:
            self._single.discard(word)
            self._busy_since_s[word] = time.monotonic()
        else:
            self._busy_since_s.pop(-word, None)
            self._spares.add(-word)

    def _reap(self) -> None:
        ended = []
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) > 0:
                ended.append(pid)
        if ended:
            self._hear()  # their last words, before their numbers belong to others
        for pid in ended:
            self._spares.discard(pid)
            self._single.discard(pid)
            self._busy_since_s.pop(pid, None)


def _listen(path: Path) -> socket.socket:
    """A socket for this user alone, which has its name once it listens. The lock is ours: an old
    socket belongs to nobody.
    """
    draft = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    listening = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)
    try:
        listening.bind(str(draft))
    finally:
        os.umask(umask)
    listening.listen(512)
    draft.replace(path)
    return listening


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _places() -> tuple[tuple[int, int], ...]:
    """The directories of dlq, which an upgrade removes and makes anew."""
    paths = [path for room in _ROOMS[1:] for path in sys.modules[room].__path__]
    return tuple((found.st_ino, found.st_mtime_ns) for found in map(_stat, paths) if found)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _files() -> dict[str, tuple[int, int, int]]:
    """Every file of dlq that is imported, as it is on disk now."""
    seen = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and name.partition(".")[0] in _ROOMS:
            found = _stat(path)
            seen[name] = (found.st_mtime_ns, found.st_ino, found.st_size) if found else (0, 0, 0)
    return seen
