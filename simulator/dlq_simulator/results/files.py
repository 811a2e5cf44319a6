"""The files that `dlq simulate` writes; failed writes are refused in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.results import report


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SimulateError(
            f"cannot create {str(path)!r}", _reason(error), "give another directory"
        ) from error


def check_writable(path: Path) -> None:
    """SimulateError if the directory, or the file that is there or will be, may not be written."""
    asked = path if path.exists() else path.parent
    if not os.access(asked, os.W_OK | os.X_OK if asked.is_dir() else os.W_OK):
        raise _refused(path, "permission denied")


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _refused(path, _reason(error)) from error


def write_jobs(path: Path, outcomes: Sequence[ReplayOutcome]) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            report.write_jobs(file, outcomes)
    except OSError as error:
        raise _refused(path, _reason(error)) from error


def _refused(path: Path, why: str) -> SimulateError:
    return SimulateError(f"cannot write {str(path)!r}", why, "give a path that you may write")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
