"""The control file of a directory: it turns recording on and off in jobs that run."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

NAME = "control"
_MAGIC = b"DLQPCTL\0"
_LAYOUT = struct.Struct("<8sIIIIQ32x")
_VERSION = 1
_MODE_AT = 12
OFF, RECORD = 0, 1


class Control(NamedTuple):
    """What a control file says. `files_opened` beyond `file_limit` were refused."""

    mode: int
    file_limit: int
    files_opened: int
    ring_bytes: int


def write_control(
    directory: Path, *, on: bool = True, file_limit: int = 0, ring_bytes: int = 0
) -> Path:
    """Put a control file into a directory, before the program starts. Zeros: the libraries' limits."""
    path = directory / NAME
    content = _LAYOUT.pack(_MAGIC, _VERSION, RECORD if on else OFF, file_limit, 0, ring_bytes)
    fresh = path.with_name(f".{NAME}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
    return path


def read_control(directory: Path) -> Control:
    """What the control file of a directory says. Raises OSError or ValueError."""
    raw = (directory / NAME).read_bytes()
    if len(raw) < _LAYOUT.size:
        raise ValueError("the control file is cut short")
    magic, version, mode, limit, opened, ring = _LAYOUT.unpack(raw[: _LAYOUT.size])
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is no control file of this version")
    return Control(mode, limit, opened, ring)


def switch(directory: Path, *, on: bool) -> None:
    """Turn recording on or off, in place: the libraries have the file mapped."""
    read_control(directory)
    fd = os.open(directory / NAME, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(fd, struct.pack("<I", RECORD if on else OFF), _MODE_AT)
    finally:
        os.close(fd)
