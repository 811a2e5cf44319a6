"""A store of tests on PostgreSQL: one database, each time with empty tables."""

import psycopg

from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from dlq_master.store.postgres.schema import COLUMNS, is_there, make_tables


def begin_anew(server: PostgresPlace) -> None:
    """Make the tables, or empty them."""
    line = PostgresLine(server, WRITER)
    try:
        if not is_there(line):
            make_tables(line)
        with line.pipelined():  # TRUNCATE would make each file anew
            for name in (*COLUMNS, "turns"):
                line.own(f"DELETE FROM {name}")
        line.own("UPDATE leader SET epoch = 0, system_identifier = 0, timeline = 0")
    finally:
        line.close()


def connect(server: PostgresPlace) -> psycopg.Connection[tuple[object, ...]]:
    """Another line, for what a test does behind the store's back."""
    return psycopg.connect(server.conninfo(), autocommit=True)
