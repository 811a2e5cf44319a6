"""A consistent copy of the live database, made without delaying the writer."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from dlq_master.store.batch import COPY
from dlq_master.store.port import BackupFailed
from dlq_master.store.sqlite.open import connect, settle_file

SEALED_KEY: Final = "ca.key.encrypted"  # in a copy: the CA's key, by the passphrase of [backup]

# Files in the state directory that report the result of `dlq-master backup` to readers outside of
# it:
STAMP: Final = "backup.stamp"  # its time is that of the last whole copy
FAILURE: Final = "backup.failed"  # there while the last copy, or its use by the site, has failed


def backup(source: Path, target: Path) -> None:
    """Copy the last commit of `source` into `target`, which is replaced once the copy is on disk.

    BackupFailed: no copy was made.
    """
    try:
        _copy(source, target)
    except (OSError, sqlite3.Error) as error:
        raise BackupFailed(f"{target}: {error}") from error


def _copy(source: Path, target: Path) -> None:
    unfinished = target.with_name(f"{target.name}.incomplete")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    with closing(connect(source)) as living, closing(sqlite3.connect(unfinished)) as copy:
        living.backup(copy)
        verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":  # and so is the living database, from which the copy was made
            raise BackupFailed(f"{source} is damaged: {verdict}")
        with copy:
            copy.execute("INSERT OR REPLACE INTO meta VALUES (?, 'yes')", [COPY])
        # A file of its own: without this it would need a -wal beside it.
        copy.execute("PRAGMA journal_mode = DELETE")
    settle_file(unfinished, target)
