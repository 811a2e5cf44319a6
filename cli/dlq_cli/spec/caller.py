"""The part of a job that it inherits from the process that submits it, where its spec is silent.

A restart or a silence of a daemon changes none of it: it is stored with the spec.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dlq_cli.spec.values.given import Given, Layer
from dlq_common.job_fields.table.job import UMASK

_SHELL = "your shell"
_STATUS = Path("/proc/self/status")
_OWN = "Umask:"


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
