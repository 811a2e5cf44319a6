"""The database that the configuration names: opening it, and asking it one fact."""

from __future__ import annotations

from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_master.control.config import POSTGRESQL, SQLITE, TLS_MODES, MasterConfig
from dlq_master.store.committing import BatchWriter
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import EarlyCheck, read_meta

if TYPE_CHECKING:
    from dlq_master.store.postgres.line import PostgresPlace

PAGE = "docs/running/postgresql.md"


def check_store(config: MasterConfig) -> None:
    """Refuse settings of the store that cannot be. Raises ConfigError."""
    store = config.store
    if store.backend not in (SQLITE, POSTGRESQL):
        words = f"store.backend is {SQLITE} or {POSTGRESQL}"
        raise ConfigError(words, key="store.backend")
    if store.tls not in TLS_MODES:
        raise ConfigError(f"store.tls is one of {', '.join(TLS_MODES)}", key="store.tls")
    if store.backend == POSTGRESQL:
        if not store.dsn:
            raise ConfigError("store.dsn: PostgreSQL needs it", hint=PAGE, key="store.dsn")
        if config.shipping.is_on:
            words = "shipping is for SQLite; a standby of PostgreSQL has every row already"
            raise ConfigError(words, hint=PAGE, key="shipping.directory")
        place_of(config).conninfo()
    elif store.dsn:
        raise ConfigError("store.dsn means something with PostgreSQL only", key="store.dsn")


def need_sqlite(config: MasterConfig, command: str) -> None:
    """Refuse a command for the file of SQLite. Raises ConfigError."""
    if config.store.backend != SQLITE:
        raise ConfigError(f"{command} is for SQLite; PostgreSQL has tools of its own", hint=PAGE)


def early_check(config: MasterConfig) -> EarlyCheck | None:
    """The check of a file that may begin before the master has imported its modules."""
    return EarlyCheck(path_of(config)) if config.store.backend == SQLITE else None


def path_of(config: MasterConfig) -> Path:
    """The file of SQLite."""
    return config.cluster.state_dir / "dlq.db"


def place_of(config: MasterConfig) -> PostgresPlace:
    """The server and its database. psycopg is imported by a master that uses it, by no other."""
    try:
        from dlq_master.store.postgres.line import PostgresPlace
    except ImportError as error:
        told = f"psycopg is not installed ({error})"
        raise ConfigError(f"store.backend: {told}", hint="pip install 'dlq[pair]'") from None
    store = config.store
    return PostgresPlace(
        store.dsn, store.password_file, store.tls, store.tls_ca, store.allow_asynchronous
    )


def open_store(
    config: MasterConfig, leaving: AsyncExitStack, early: EarlyCheck | None
) -> tuple[BatchWriter, StoreReader]:
    """The two halves of the store; they are closed when the master leaves."""
    writer: BatchWriter
    reader: StoreReader
    if config.store.backend == SQLITE:
        writer = Writer(path_of(config), early)
        leaving.callback(writer.close)
        reader = Reader(path_of(config))
    else:
        place = place_of(config)
        from dlq_master.store.postgres.halves import PostgresReader, PostgresWriter

        writer = PostgresWriter(place, config.listen.advertise or config.listen.api)
        leaving.callback(writer.close)
        for told in writer.may_lose:
            get_logger("master").warning("commits_may_be_lost", cause=told)
        reader = PostgresReader(place, writer.fence)
    leaving.callback(reader.close)
    return writer, reader


def stored_meta(config: MasterConfig, key: str) -> str | None:
    """One fact that the database knows of itself, without a claim on it; None: it does not."""
    if config.store.backend == SQLITE:
        return read_meta(path_of(config), key)
    place = place_of(config)
    from dlq_master.store.postgres.line import QUICK_READER, PostgresLine

    with closing(PostgresLine(place, QUICK_READER)) as line:
        row = line.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    return None if row is None else str(row[0])
