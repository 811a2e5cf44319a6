"""The last turn that this master knows to be committed, also over its own restarts.

A database that lacks this turn has lost acknowledged work. A leader notes each of its commits
before the answer leaves, and a standby notes each turn that it reads. The file is not synced: it
outlives the process, and a host that loses its power is not the only one that knows. Its line ends
with a checksum: a disk may change it.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from pathlib import Path
from typing import Final

from dlq_common.daemon.logs import get_logger
from dlq_master.store.port import DatabaseDamaged

NAME: Final = "turn-seen"  # in the state directory
PAGE: Final = "docs/running/high-availability.md"
# The number, the system and the checksum. Former releases have written less.
_LINE: Final = re.compile(rb"(?P<told>(\d+)( +(\d+))?)( (?P<sum>[0-9a-f]{8}))?\n?")

_log = get_logger("master.leader")


class TurnSeen:
    """A number and the system of its database. Any thread may note one."""

    def __init__(self, path: Path) -> None:
        """Raises DatabaseDamaged for a file that the disk has changed, and OSError."""
        self._path = path
        self._lock = threading.Lock()
        self._file = -1
        self._failed = False
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
        """A full disk ends no leader."""
        self._number, self._system = number, system
        told = f"{number:020d} {system:>20}".encode()
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            # In one piece and always of one length: a kill leaves the old line or the new one.
            os.pwrite(self._file, b"%s %08x\n" % (told, zlib.crc32(told)), 0)
        except OSError as error:
            if not self._failed:
                remedy = "until it can be written, a restart here knows fewer turns"
                _log.error("turn_not_kept", file=str(self._path), cause=str(error), remedy=remedy)
            self._failed = True
        else:
            self._failed = False


def _read(path: Path) -> tuple[int, str]:
    try:
        # A host that has lost its power may leave zeros.
        line = path.read_bytes().strip(b"\0")
    except FileNotFoundError:
        return 0, ""
    if not line:
        return 0, ""
    found = _LINE.fullmatch(line)
    if found is None or (found["sum"] and int(found["sum"], 16) != zlib.crc32(found["told"])):
        raise damaged(path)
    return int(found[2]), (found[4] or b"").decode()


def damaged(path: Path) -> DatabaseDamaged:
    """The refusal of a file by which this master knows the right database."""
    return DatabaseDamaged(
        f"{path} is damaged: it says which database this master may lead on",
        hint=f"look that [store] dsn names the right database, then delete the file ({PAGE})",
    )
