"""Reading the files that people name: scripts and specs, no more of them than either may hold."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from dlq_cli.spec.script import LARGEST_SCRIPT_BYTES
from dlq_cli.spec.values.given import wrong

STDIN = "-"


def read_source(path: str) -> bytes:
    """The bytes of a file (- is stdin), up to the limit of a script or spec, and one byte more."""
    if path == STDIN:
        return sys.stdin.buffer.read(LARGEST_SCRIPT_BYTES + 1)
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST_SCRIPT_BYTES + 1)
    except (OSError, ValueError) as error:
        # Whether this host has such a program says little: it is a node that runs it.
        is_command = "/" not in path and (not Path(path).suffix or shutil.which(path))
        hint = f"to queue a command: dlq submit -- {path} ..." if is_command else ""
        words = error.strerror if isinstance(error, OSError) else "not a file's name"
        raise wrong(path, (words or "cannot be read").lower(), hint=hint) from None
