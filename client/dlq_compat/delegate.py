"""Programs that must ask the master: they become `dlq slurm NAME`, with the user's own identity.

A job gets no identity from dlq. Inside a job they need the user's identity (~/.config/dlq, on a
home directory that the nodes share). Without it they name the missing file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Optional

CLI_FILE = "dlq-cli"
"""Beside this package where it is installed: the directory of that installation's `dlq`."""
_ANSWER_S = 15.0

dlq_here: Optional[Callable[[str, List[str]], int]] = None
"""Runs `dlq slurm NAME ARGUMENTS` in this process, where `dlq` is imported already."""


def run(name: str, arguments: List[str]) -> int:
    """Become `dlq slurm NAME ARGUMENTS`; returns only when there is no `dlq`, or when it is in this
    process.
    """
    if dlq_here is not None:
        return dlq_here(name, arguments)
    program = _dlq()
    if program is not None:
        os.execv(program, [program, "slurm", name, *arguments])
    print(
        "%s: no `dlq` command is here: put it into PATH (pip install dlq), or use %s where you "
        "submit jobs" % (name, name),
        file=sys.stderr,
    )
    return 127


def asked(name: str, arguments: List[str]) -> Optional[bytes]:
    """The output of `dlq slurm NAME ARGUMENTS`; None: no answer, or not in time."""
    program = _dlq()
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "slurm", name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _dlq() -> Optional[str]:
    found = shutil.which("dlq")
    if found:
        return found
    try:
        noted = (Path(__file__).parents[1] / CLI_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return noted if noted and os.access(noted, os.X_OK) else None
