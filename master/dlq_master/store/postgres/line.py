"""A connection to PostgreSQL for the store's statements.

It never waits for ever. The kernel drops a silent server after seconds (tcp_user_timeout,
keepalives). The server ends an idle transaction.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from psycopg.abc import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown

from dlq_common.errors import ConfigError, Unavailable
from dlq_common.identity.private_files import read_private
from dlq_master.store.port import Found
from dlq_master.store.postgres.dialect import translated

NAME: Final = "dlq-master"  # what pg_stat_activity calls us
_HOW: Final = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "4000",
    "target_session_attrs": "read-write",
}
# Of each use of a line. The commit's line has no time limit. A cancelled commit that waits for the
# standby stays on the server, and may be lost with it.
WRITER: Final = {
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "3s",
    "client_min_messages": "warning",
}
QUICK_READER: Final = {"statement_timeout": "10s", "default_transaction_read_only": "on"}
LONG_READER: Final = {
    "statement_timeout": "10min",
    "idle_in_transaction_session_timeout": "1min",
    "default_transaction_read_only": "on",
}


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """The address of the server, and how it is trusted."""

    dsn: str  # of libpq: host=... dbname=..., or service=NAME; never with a password
    password_file: str = ""
    tls: str = "verify-full"  # libpq's sslmode; sockets of this host have none
    tls_ca: str = ""
    allow_asynchronous: bool = False

    def conninfo(self) -> str:
        """The connection string for libpq. ConfigError: it cannot be made."""
        try:
            known = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"store.dsn: {str(error).strip()}", key="store.dsn") from None
        if "password" in known:
            told = "a password lies in the file of store.password_file, not here"
            raise ConfigError(f"store.dsn: {told}", key="store.dsn")
        more: dict[str, str] = {"sslmode": self.tls, "application_name": NAME, **_HOW}
        if self.tls_ca:
            more["sslrootcert"] = self.tls_ca
        if self.password_file:
            try:
                more["password"] = read_private(Path(self.password_file)).decode().strip()
            except OSError as error:
                told = f"{self.password_file}: {error.strerror}"
                raise ConfigError(f"store.password_file: {told}", source=told) from None
        return make_conninfo("", **{**more, **{k: str(v) for k, v in known.items()}})

    def place(self) -> str:
        """The place in words, for messages."""
        known = conninfo_to_dict(self.dsn)
        told = (
            f"{name}={known[name]}"
            for name in ("service", "host", "port", "dbname")
            if name in known
        )
        return f"PostgreSQL ({' '.join(told)})"


def _say_nothing() -> Iterator[None]:
    """Leave statements in their queue."""
    return iter(())


class _WithoutNul(StrDumperUnknown):
    """A text without NUL, which PostgreSQL's texts cannot hold.

    JSON bodies escape it. In a cause another character replaces it.
    """

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


class PostgresLine:
    """One connection, used by one thread at a time, except for `interrupt` and `abandon`."""

    def __init__(self, server: PostgresPlace, settings: Mapping[str, str]) -> None:
        """Unavailable: the server cannot be reached, or accepts no writes."""
        self._server, self._settings = server, settings
        self.warned = ""  # the last warning of the server
        self._line = self._opened()

    def _opened(self) -> psycopg.Connection[Any]:
        try:
            line = psycopg.connect(
                self._server.conninfo(), autocommit=True, cursor_factory=psycopg.RawCursor
            )
        except psycopg.OperationalError as error:
            told = f"{self._server.place()} cannot be used: {str(error).strip()}"
            raise Unavailable(told) from error
        line.adapters.register_dumper(int, Int8Dumper)  # one statement for numbers of every size
        line.adapters.register_dumper(str, _WithoutNul)
        line.prepare_threshold = 1
        line.add_notice_handler(self._noticed)
        with line.pipeline():
            for name, value in self._settings.items():
                line.execute("SELECT set_config($1, $2, false)", [name, value])
        return line

    def _noticed(self, told: psycopg.errors.Diagnostic) -> None:
        if told.severity_nonlocalized == "WARNING":
            self.warned = told.message_primary or "a warning without words"

    def rename(self, name: str) -> None:
        """Rename this connection in pg_stat_activity, also once it is reopened."""
        if self._settings.get("application_name") != name:
            self._settings = {**self._settings, "application_name": name}
            self._line.execute("SELECT set_config('application_name', $1, false)", [name])

    @property
    def broken(self) -> bool:
        """Whether the connection is lost."""
        return self._line.closed or self._line.broken

    def has_news(self, within_s: float = 0.0) -> bool:
        """Whether the server has sent something unasked, such as the end of the connection."""
        if self._line.closed:
            return True
        # `select` takes no descriptor above 1,023, and each agent has one.
        looking = select.poll()
        looking.register(self.fileno(), select.POLLIN)
        return bool(looking.poll(1000 * within_s))

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._line.fileno()

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Found:
        statement = translated(sql)
        return self._line.execute(statement.text, statement.values(values))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        with self._line.cursor() as cursor:
            cursor.executemany(translated(sql).text, rows)

    def own(self, sql: LiteralString, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Run a statement in PostgreSQL's own dialect."""
        return self._line.execute(sql, values)

    @contextmanager
    def copied(self, sql: LiteralString) -> Iterator[Callable[[Sequence[Any]], None]]:
        """COPY rows into a table."""
        with self._line.cursor() as cursor, cursor.copy(sql) as copy:
            yield copy.write_row

    def streamed(self, sql: LiteralString) -> Iterator[tuple[Any, ...]]:
        """The rows of a query that may not fit into memory."""
        with self._line.cursor() as cursor:
            yield from cursor.stream(sql)

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        """Send the statements of the block together; raise the first failure at its end.

        psycopg alone would send each one by itself, and look for answers twice in between.
        """
        with self._line.pipeline() as pipeline:
            kept = getattr(pipeline, "command_queue", None)
            own = getattr(pipeline, "__dict__", None)
            if kept is None or own is None or not hasattr(pipeline, "_communicate_gen"):
                yield  # a psycopg that is made otherwise: slower, and just as right
                return
            own["_communicate_gen"] = _say_nothing
            try:
                yield
                while kept:
                    kept.popleft()()  # into the buffer of libpq
            finally:
                del own["_communicate_gen"]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads of the block see one moment."""
        self._line.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg.Error):
                self._line.execute("ROLLBACK")

    def interrupt(self) -> None:
        """End the running statement."""
        with suppress(psycopg.Error):
            self._line.cancel_safe(timeout=2.0)

    def abandon(self) -> None:
        """From any thread: make the running statement fail here, even if the server is silent."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._line.close()


class ReadingLine(PostgresLine):
    """A connection that is reopened after a loss; until then a read raises Unavailable."""

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Found:
        with self._telling():
            self._open_again()
            return super().execute(sql, values)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._telling():
            self._open_again()
            with super().snapshot():
                yield

    def _open_again(self) -> None:
        if self.broken:
            self._line = self._opened()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except psycopg.OperationalError as error:
            told = f"{self._server.place()} does not answer: {str(error).strip()}"
            raise Unavailable(told) from error
