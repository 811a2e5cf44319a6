"""The script that sbatch is given: read with Slurm's own refusals."""

from __future__ import annotations

import sys
from pathlib import Path

from dlq_cli.output.said import SlurmSays
from dlq_cli.spec.script import LARGEST_SCRIPT_BYTES, decode_script

_NO_INTERPRETER = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)
_DOS = (
    "Batch script contains DOS line breaks (\\r\\n)",
    "instead of expected UNIX line breaks (\\n).",
)
_NUL = (
    "The Slurm controller does not allow scripts that",
    "contain a NULL character '\\0'.",
)
_TOO_LARGE = (
    "Batch job submission failed: Pathname of a file, directory or other parameter too long",
)


def _refusal(*lines: str) -> SlurmSays:
    return SlurmSays(*(f"sbatch: error: {line}" for line in lines))


def read_batch_script(path: str | None) -> str:
    """The text of a file, or of stdin. SlurmSays says why it is no batch script."""
    content = _content(path)
    name = path or "stdin"
    if not content:
        raise _refusal("Batch script is empty!")
    if not content.strip():
        raise _refusal("Batch script contains only whitespace!")
    if len(content) > LARGEST_SCRIPT_BYTES:
        raise _refusal(*_TOO_LARGE)
    if not content.removeprefix(b"\xef\xbb\xbf").startswith(b"#!"):
        raise _refusal(*_NO_INTERPRETER)
    if b"\0" in content:
        raise _refusal(*_NUL)
    if b"\r\n" in content:
        raise _refusal(*_DOS)
    return decode_script(content, name)


def _content(path: str | None) -> bytes:
    try:
        if path is None:
            return sys.stdin.buffer.read(LARGEST_SCRIPT_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(LARGEST_SCRIPT_BYTES + 1)
    except IsADirectoryError:
        return b""
    except (OSError, ValueError):
        raise _refusal(f"Unable to open file {path}") from None
