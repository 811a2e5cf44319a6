"""The last turn that this master knows to be committed, also over its own restarts.

A database that lacks this turn has lost acknowledged work. A leader notes each of its commits
before the answer leaves, and a standby notes each turn that it reads. The file is not synced: it
outlives the process, and a host that loses its power is not the only one that knows.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "turn-seen"  # in the state directory


class TurnSeen:
    """A number and the system of its database. Any thread may note one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file = -1
        self._number, self._system = _read(path)

    def of(self, system: str) -> int:
        """The last turn of this system; 0: none is known."""
        with self._lock:
            return self._number if self._system in ("", system) else 0

    def note(self, number: int, system: str) -> None:
        """A turn is committed. One of another system says nothing: see `follow`."""
        with self._lock:
            if number > self._number and self._system in ("", system):
                self._write(number, system)

    def follow(self, system: str) -> None:
        """The rows have moved to this system, and their masters obey it."""
        with self._lock:
            if system != self._system:
                self._write(self._number if not self._system else 0, system)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _write(self, number: int, system: str) -> None:
        self._number, self._system = number, system
        with suppress(OSError):  # a full disk ends no leader
            if self._file < 0:
                self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            # In one piece and always of one length: a kill leaves the old line or the new one.
            os.pwrite(self._file, f"{number:020d} {system:>20}\n".encode(), 0)


def _read(path: Path) -> tuple[int, str]:
    try:
        words = path.read_text("ascii").split()
    except FileNotFoundError:
        return 0, ""
    return (int(words[0]), "".join(words[1:2])) if words else (0, "")
