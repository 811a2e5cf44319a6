"""The part of a job that it inherits from the process that submits it: its umask, and with Slurm's
commands its soft limits.

A restart or a silence of a daemon changes none of it: it is stored with the spec.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path

from dlq_cli.output.said import SlurmSays
from dlq_cli.spec.values.given import Given, Layer
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.table.job import UMASK
from dlq_common.text.soft_limits import NAMES, UNLIMITED, read_limit_names

_SHELL = "your shell"
_STATUS = Path("/proc/self/status")
_OWN = "Umask:"
_MEMLOCK = "MEMLOCK"

instead: dict[int, int] = {}
"""Soft limits of the caller by their numbers, where those of this process are others: a helper
(dlq_cli.front) has used CPU time before the call.
"""


def caller_layer() -> Layer:
    """The umask. A layer below all others."""
    return {UMASK.key: Given(own_umask(), _SHELL)}


def own_umask() -> int:
    """The mask of this process."""
    with suppress(OSError):  # the call below changes it, and another thread may make a file
        for line in _STATUS.read_text(errors="replace").splitlines():
            if line.startswith(_OWN):
                return int(line.removeprefix(_OWN), 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def own_limits(asked: str | None, program: str) -> Mapping[str, int]:
    """The soft limits for a job of one of Slurm's commands; `asked` is its --propagate.

    Without one, MEMLOCK is left to the node where it is the hard limit of this host. That is made
    for logins, and too little for RDMA. SlurmSays for a word that is no limit.
    """
    try:
        names = NAMES if asked is None else read_limit_names(asked)
    except ValueError as error:
        raise SlurmSays(
            f"{program}: error: Bad rlimit name: {str(error)[:64]}",
            f"{program}: error: --propagate={asked} is not valid.",
        ) from None
    found = {name: _own_limit(name) for name in names}
    if asked is None and found[_MEMLOCK] == _hard(_MEMLOCK):
        del found[_MEMLOCK]
    return found


def _own_limit(name: str) -> int:
    number = getattr(resource, f"RLIMIT_{name}")
    return _told(instead.get(number, resource.getrlimit(number)[0]))


def _hard(name: str) -> int:
    return _told(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1])


def _told(value: int) -> int:
    return UNLIMITED if value < 0 else value


def callers_directory(merged: Container[str]) -> str:
    """The caller's present directory, which a job runs in that names no other."""
    try:
        return os.getcwd()
    except OSError:
        if "workdir" in merged:
            return "/"
        raise InvalidRequest(
            "your present directory is gone", hint="name the job's with --chdir"
        ) from None
