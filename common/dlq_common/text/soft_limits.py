"""Resource limits that a job takes over from the shell that submits it, by Slurm's names.

Each is a soft limit. It never rises above the hard limit that a job has on its node anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlq_common.text.names import shown

NAMES = (
    "CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS",
)  # fmt: skip
"""Behind RLIMIT_, as the kernel knows them."""
UNLIMITED = 2**64 - 1


def check_soft_limits(limits: Mapping[str, int]) -> Mapping[str, int]:
    """ValueError for a name that is none of these, and for a value that the kernel cannot hold."""
    for name, value in limits.items():
        if name not in NAMES:
            raise ValueError(f"{shown(name)} is not one of {', '.join(NAMES)}")
        if not 0 <= value <= UNLIMITED:
            raise ValueError(f"{name} must be between 0 and {UNLIMITED}")
    return limits


def read_limit_names(text: str) -> tuple[str, ...]:
    """The names that `--propagate` lists, as Slurm reads them: ALL, NONE, or some of them.
    ValueError holds a word that is none.
    """
    if text in {"", "ALL"}:
        return NAMES
    if text == "NONE":
        return ()
    words = [word.removeprefix("RLIMIT_") for word in re.split("[, ]+", text) if word]
    for word in words:
        if word not in NAMES:
            raise ValueError(word)
    return tuple(name for name in NAMES if name in words)
