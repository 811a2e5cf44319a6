"""The control file of a directory: it turns recording on and off in jobs that run."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

NAME = "control"
_MAGIC = b"DLQPCTL\0"
_LAYOUT = struct.Struct("<8sIIIIQ32x")
_VERSION = 1
_MODE_AT = 12
OFF, RECORD = 0, 1


class RecordingControl(NamedTuple):
    """The content of a control file. `files_opened` beyond `file_limit` were refused."""

    mode: int
    file_limit: int
    files_opened: int
    ring_bytes: int


def write_control(
    directory: Path, *, on: bool = True, file_limit: int = 0, ring_bytes: int = 0
) -> Path:
    """Put a control file into a directory before the start. Zeros: the libraries' limits."""
    path = directory / NAME
    content = _LAYOUT.pack(_MAGIC, _VERSION, RECORD if on else OFF, file_limit, 0, ring_bytes)
    fresh = path.with_name(f".{NAME}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
    return path


def read_control(directory: Path) -> RecordingControl:
    """The control file of a directory. Raises OSError or ValueError."""
    with _opened(directory, os.O_RDONLY) as fd:
        return _read(fd)


def switch(directory: Path, *, on: bool) -> None:
    """Turn recording on or off, in place: the libraries have the file mapped."""
    with _opened(directory, os.O_RDWR) as fd:
        _read(fd)
        os.pwrite(fd, struct.pack("<I", RECORD if on else OFF), _MODE_AT)


@contextmanager
def _opened(directory: Path, how: int) -> Iterator[int]:
    """A plain file: a job may have put anything in its place."""
    fd = os.open(directory / NAME, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("the control file is no file")
        yield fd
    finally:
        os.close(fd)


def _read(fd: int) -> RecordingControl:
    raw = os.pread(fd, _LAYOUT.size, 0)
    if len(raw) < _LAYOUT.size:
        raise ValueError("the control file is cut short")
    magic, version, mode, limit, opened, ring = _LAYOUT.unpack(raw)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is no control file of this version")
    return RecordingControl(mode, limit, opened, ring)
