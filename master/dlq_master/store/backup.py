"""A consistent copy of the living database, made beside the writer and never in its way."""

import sqlite3
from contextlib import closing
from pathlib import Path


def backup(source: Path, target: Path) -> None:
    """Copy the last commit of `source` into `target`, replaced at once when the copy is whole."""
    unfinished = target.with_suffix(".incomplete")
    unfinished.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as living,
        closing(sqlite3.connect(unfinished)) as copy,
    ):
        living.backup(copy)
    unfinished.chmod(0o600)
    unfinished.replace(target)
