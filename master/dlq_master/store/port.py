"""The port to a database: a connection, and its failures.

The SQL of this package is in SQLite's dialect; `postgres/dialect.py` translates it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dlq_common.errors import DlqError


class Found(Protocol):
    """The rows of a statement."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def fetchmany(self, size: int, /) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class StoreLine(Protocol):
    """A connection, used by one thread at a time. Any thread may call `interrupt`."""

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ..., /) -> Found: ...
    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> object: ...

    def snapshot(self) -> AbstractContextManager[object]:
        """Make all reads of the block see the same state."""

    def interrupt(self) -> None:
        """End the running statement, from any thread."""

    def close(self) -> None: ...


class AuditState(Protocol):
    """How far the audit's file is, as the database stores it."""

    def written(self) -> tuple[str, tuple[str, ...]]:
        """The last line on disk, and ids of lines that the database may drop."""

    def forgotten(self, note_ids: tuple[str, ...]) -> None:
        """The database has dropped these ids: the file has the lines."""


class CommitFailed(DlqError):
    """A batch is not on disk, and this process must not write any more. Facts: error."""

    reason = "COMMIT_FAILED"


class DatabaseDamaged(DlqError):
    """The database is damaged. The master refuses to start."""

    reason = "DATABASE_DAMAGED"


class DatabaseInUse(DlqError):
    """Another process writes this database. Two masters on one would undo each other's work."""

    reason = "DATABASE_IN_USE"


class BackupFailed(DlqError):
    """No new copy was made; the last one is untouched."""

    reason = "BACKUP_FAILED"


class CommitUnknown(CommitFailed):
    """It is unknown whether the database has a batch. It is never tried again. Facts: error."""

    reason = "COMMIT_UNKNOWN"


class FencedOff(CommitFailed):
    """Another master has taken the lead. Facts: error."""

    reason = "FENCED_OFF"
