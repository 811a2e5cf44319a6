"""The database that the configuration names: opening it, and asking it one fact."""

from __future__ import annotations

from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_master.control.config import POSTGRESQL, SQLITE, TLS_MODES, MasterConfig
from dlq_master.store.batch import AUDIT_HEAD
from dlq_master.store.committing import BatchWriter
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import EarlyCheck, read_meta

if TYPE_CHECKING:
    from dlq_master.control.loop.ports import Leads
    from dlq_master.rpc.agents.commands import RowsPlace
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
    elif config.leader.masters:
        told = "leader.masters needs PostgreSQL: a file of SQLite has one master"
        raise ConfigError(told, hint=PAGE, key="leader.masters")
    elif store.dsn:
        raise ConfigError("store.dsn means something with PostgreSQL only", key="store.dsn")


def check_leader(config: MasterConfig) -> None:
    """Refuse settings of masters that cannot be. Raises ConfigError."""
    leader, own = config.leader, config.listen.advertise or config.listen.api
    if not leader.masters:
        return
    from dlq_common.text.addresses import split_addresses

    try:
        split_addresses(",".join(leader.masters))
    except ValueError as error:
        raise ConfigError(f"leader.masters: {error}", key="leader.masters") from None
    if own not in leader.masters:
        told = f"{own} (listen.advertise, or listen.api) is not among them"
        raise ConfigError(f"leader.masters: {told}", key="leader.masters")
    if not 1.0 <= leader.ttl <= 60.0:
        raise ConfigError("leader.ttl is between 1s and 60s", key="leader.ttl")
    for key, value in (("renew", leader.renew), ("poll", leader.poll)):
        if not 0.0 < value <= leader.ttl / 3:
            told = f"leader.{key} is above 0, and at most a third of leader.ttl"
            raise ConfigError(told, key=f"leader.{key}")


def audit_key(config: MasterConfig) -> str:
    """The key of meta for the audit's last line: each of several masters has a file of its own."""
    if not config.leader.masters:
        return AUDIT_HEAD
    return f"{AUDIT_HEAD}:{config.listen.advertise or config.listen.api}"


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
    config: MasterConfig,
    leaving: AsyncExitStack,
    early: EarlyCheck | None,
    leads: Leads | None = None,
) -> tuple[BatchWriter, StoreReader]:
    """The two halves of the store; they are closed when the master leaves. `leads`: this master has
    a lease.
    """
    writer: BatchWriter
    reader: StoreReader
    if config.store.backend == SQLITE:
        writer = Writer(path_of(config), early)
        leaving.callback(writer.close)
        reader = Reader(path_of(config))
    else:
        place = place_of(config)
        from dlq_master.store.postgres.fence import Fence
        from dlq_master.store.postgres.halves import PostgresReader, PostgresWriter

        lease = None if leads is None else leads.fence
        led = None if lease is None else Fence(int(lease.system), lease.timeline, lease.epoch)
        writer = PostgresWriter(place, config.listen.advertise or config.listen.api, led)
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


def database_of(config: MasterConfig, writer: BatchWriter) -> RowsPlace:
    """The name of the rows' place, which agents remember."""
    from dlq_master.rpc.agents.commands import OWN_FILE, RowsPlace

    if config.store.backend == SQLITE:
        return OWN_FILE
    from dlq_master.store.postgres.halves import PostgresWriter

    assert isinstance(writer, PostgresWriter)
    system, timeline, _ = writer.fence
    return RowsPlace(str(system), timeline, config.leader.former_systems)
