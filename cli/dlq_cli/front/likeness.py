"""A process that becomes like its caller, and neutral again once the call has ended."""

from __future__ import annotations

import io
import os
import resource
import sys
import time
from collections.abc import Sequence

from dlq_cli.front.request import LIMITS, FrontRequest
from dlq_cli.spec import caller

_OWN_MASK = 0o077


Limits = dict[int, tuple[int, int]]
"""Resource limits by their numbers: soft and hard."""


def become(request: FrontRequest) -> Limits:
    """Take over descriptors, directory, environment, umask and limits of the caller.

    Returns the former values of the limits that changed.
    """
    for number, descriptor in enumerate(request.descriptors[:3]):
        os.dup2(descriptor, number)
    os.fchdir(request.descriptors[3])
    for descriptor in request.descriptors:
        os.close(descriptor)
    _take_environment(request.environment)
    time.tzset()
    os.umask(request.umask)
    changed: Limits = {}
    caller.instead.clear()
    for number in range(LIMITS):
        before, hard = resource.getrlimit(number)
        soft = -1 if request.limits[number] >= 1 << 63 else request.limits[number]
        if number == resource.RLIMIT_CPU and soft >= 0:
            caller.instead[number] = soft
            soft = _with_used(soft, hard)
        if soft != before:
            changed[number] = (before, hard)
            resource.setrlimit(number, (soft, hard))
    _open_streams()
    return changed


def let_go(null: int, limits: Limits) -> None:
    """Keep nothing of the caller: no descriptor, directory, variable or limit. `null`:
    /dev/null.
    """
    for number in range(3):
        os.dup2(null, number)
    for number, before in limits.items():
        resource.setrlimit(number, before)
    os.chdir("/")
    os.environb.clear()
    os.umask(_OWN_MASK)


def _with_used(soft: int, hard: int) -> int:
    """A limit of CPU time that counts only the caller's command, not those before it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft += int(used.ru_utime + used.ru_stime)
    return soft if hard < 0 else min(soft, hard)


def _take_environment(pairs: Sequence[bytes]) -> None:
    """Set each variable as it was; of two with one name the first, which getenv finds."""
    os.environb.clear()
    for pair in pairs:
        name, equals, value = pair.partition(b"=")
        if equals and name and name not in os.environb:
            os.environb[name] = value


def _open_streams() -> None:
    """Open stdin, stdout and stderr as the interpreter does when it starts."""
    spoken = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "C")
    lenient = "surrogateescape" if spoken in ("C", "POSIX") else "strict"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8", errors=lenient
    )
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = sys.__stdout__ = _writer(1, lenient, unbuffered or os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", True)  # type: ignore[misc]
    for stream, name in (
        (sys.stdin, "<stdin>"),
        (sys.stdout, "<stdout>"),
        (sys.stderr, "<stderr>"),
    ):
        stream.buffer.raw.name = name  # type: ignore[attr-defined]


def _writer(descriptor: int, errors: str, by_line: bool) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=by_line)
