"""Reads small files that any user may have written: no links, no devices, no unexpected size."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@contextmanager
def opened(name: str | Path, flags: int = DIRECTORY, *, at: int | None = None) -> Iterator[int]:
    """A descriptor for the time of the block; `at` is the directory of `name`."""
    descriptor = os.open(name, flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_small(path: str, *, most_bytes: int) -> bytes | None:
    """The file; None: it is missing, no regular file, too large, or not readable."""
    try:
        with opened(path, FILE) as descriptor:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > most_bytes:
                return None
            return os.read(descriptor, most_bytes)
    except OSError:
        return None


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object in these bytes; empty for anything else, however hostile.

    Only UTF-8 is accepted. For another encoding Python would load a module with the rights of the
    file's user, and may not find it.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def whole_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 2**63 else None
