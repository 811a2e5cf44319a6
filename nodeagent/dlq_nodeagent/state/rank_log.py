"""One file of lines to which records are added, so that many of them cost one wait for the disk.

A line is `CRC JSON`: the key, the launch and the rest of a rank's record. A launch that has not
changed is left out. A key alone forgets the rank. The file is made longer with zeros ahead of the
lines, so that a sync moves no metadata. It is written anew when most of it is of the past.

Its first line says that zeros end it at all times. So a file that the disk has cut shows, also
where the cut is between two lines.
"""

import errno
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.state.state_dir import replace_file

_STEP_BYTES = 1 << 18
_REWRITE_BYTES = 1 << 22
_MOSTLY_PAST = 3
DAMAGED = ".damaged"

_log = get_logger("nodeagent.journal")


class Entry(NamedTuple):
    """The last words about one rank, as JSON."""

    launch: bytes
    rest: bytes


@dataclass(slots=True)
class RankLog:
    """A line is in the file after `add`, and on the disk after `sync`. An OSError means that
    neither may be assumed. After the death of the agent every added line is read again, and after
    a power cut every synced one.
    """

    path: Path
    entries: dict[str, Entry] = field(default_factory=dict)
    _file: int = -1
    _end: int = 0
    _room: int = 0
    _dirty: bool = False
    _rewrite_bytes: int = _REWRITE_BYTES

    @property
    def has_head(self) -> bool:
        """Whether this agent has written the file, so that its next start must find the head."""
        return self._file >= 0

    def read(self, *, has_head: bool = False) -> None:
        """Take the lines of the file. One with a damaged line, or a cut one, is put aside too.

        `has_head`: the file must begin with the head, as the agent's other file knows.
        """
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.rstrip(b"\0").split(b"\n")
        torn = lines.pop()  # the host died meanwhile, or the disk has lost what follows
        sound = [found for found in map(_sound, lines) if found is not None]
        is_whole = content.endswith(b"\0") if content.startswith(_HEAD) else not has_head
        if torn or not is_whole or len(sound) < len(lines):
            self.put_aside()
        for line in sound:
            self._take(line)

    def put_aside(self) -> None:
        """Keep the file as it is beside the log, for people: it is never deleted."""
        aside = self.path.with_name(f"{self.path.name}.{len(self.damaged()) + 1}{DAMAGED}")
        self.path.touch(mode=0o600)  # the disk may have lost the name too
        os.link(self.path, aside)
        _log.error(
            "rank_log_damaged",
            file=str(aside),
            remedy="look at the disk of this node; ranks whose records are lost end as unknown",
        )

    def damaged(self) -> tuple[Path, ...]:
        """The files that were put aside."""
        return tuple(sorted(self.path.parent.glob(f"{self.path.name}.*{DAMAGED}")))

    def add(self, key: str, launch: bytes, rest: bytes) -> None:
        """The record of a rank from now on."""
        known = self.entries.get(key)
        same = known is not None and known.launch == launch
        self._append(_line(key, b"" if same else launch, rest))
        self.entries[key] = Entry(launch, rest)

    def drop(self, key: str) -> None:
        """Forget a rank. A full disk lets it come back after a restart."""
        if self.entries.pop(key, None) is not None:
            with suppress(OSError):
                self._append(_line(key, b"", b""))

    def sync(self) -> None:
        """Wait until all that was added is on the disk."""
        if not self._dirty:
            return
        if self._file < 0:
            self.write_anew()
            return
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise self._distrusted(error) from None
        self._dirty = False

    def write_anew(self) -> None:
        """Write the file without its past."""
        content = _HEAD + b"".join(_line(key, *entry) for key, entry in self.entries.items())
        replace_file(self.path, content + bytes(_STEP_BYTES))
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._end, self._room = len(content), len(content) + _STEP_BYTES
        self._rewrite_bytes = max(_REWRITE_BYTES, _MOSTLY_PAST * len(content))
        self._dirty = False

    def _take(self, line: bytes) -> None:
        key, launch, rest = line.split(b"\t")
        if not rest:
            self.entries.pop(key.decode(), None)
            return
        known = self.entries.get(key.decode(), Entry(b"", b""))
        self.entries[key.decode()] = Entry(launch or known.launch, rest)

    def _append(self, line: bytes) -> None:
        if self._file < 0 or self._end > self._rewrite_bytes:
            self.write_anew()
        try:
            while self._end + len(line) >= self._room:  # a zero is left
                self._write(bytes(_STEP_BYTES), self._room)
                os.fsync(self._file)
                self._room += _STEP_BYTES
            self._write(line, self._end)
        except OSError as error:
            raise self._distrusted(error) from None
        self._end += len(line)
        self._dirty = True

    def _distrusted(self, error: OSError) -> OSError:
        """The kernel may have dropped what it could not write, and a second sync would say nothing
        of it. So the next line and the next sync write the file anew. Returns the error with the
        name of the file.
        """
        os.close(self._file)
        self._file = -1
        return OSError(error.errno, error.strerror, str(self.path))

    def _write(self, content: bytes, at: int) -> None:
        if os.pwrite(self._file, content, at) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def _line(key: str, launch: bytes, rest: bytes) -> bytes:
    said = b"\t".join((key.encode(), launch, rest))  # JSON has no tabs
    return b"%08x %b\n" % (zlib.crc32(said), said)


_HEAD = _line("log-2", b"", b"")  # an older agent forgets a rank of this name


def _sound(line: bytes) -> bytes | None:
    """The line without its sum; None: it is damaged."""
    told, said = line[:8], line[9:]
    return said if told == b"%08x" % zlib.crc32(said) and said.count(b"\t") == 2 else None
