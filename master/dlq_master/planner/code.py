"""Recognises code of another version of the package in a planner or a twin.

A package may be upgraded while the master runs. The master keeps the modules that it has loaded. A
process that it starts then loads the new ones. Their values may differ, so what one says means
nothing to the other.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

# The packages whose values go through the pipes, and the packages that make plans of them.
ROOMS = ("model", "planner", "policy")
_ROOT = Path(__file__).resolve().parents[1]
_GREETING = b"dlq-code "


class OtherCode(Exception):
    """The process would run other code than the master does."""

    def __init__(self) -> None:
        super().__init__(
            "the package on disk has changed while the master ran, and what it starts now would "
            "not be of its version: restart the master"
        )


def digest(root: Path = _ROOT) -> str:
    """Of the code on disk, in hexadecimal, in some milliseconds. Raises OSError."""
    told = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            content = path.read_bytes()
            told.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return told.hexdigest()


def greeting(code: str) -> bytes:
    """The first thing that such a process says."""
    return _GREETING + code.encode()


def check(said: bytes, code: str) -> None:
    """Whether it is of this code. Raises OtherCode, or ValueError for what is no greeting."""
    if said == greeting(code):
        return
    if said.startswith(_GREETING):
        raise OtherCode
    raise ValueError("it does not say which code it runs")
