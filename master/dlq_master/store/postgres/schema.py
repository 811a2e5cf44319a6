"""The tables in PostgreSQL: SQLite's, column by column, and three more.

`leader` is the row at which every transaction begins. `turns` says which rows each of the last
turns has changed. `schema_steps` are the steps that this database has taken. Texts sort as in C, as
SQLite's do.
"""

from collections.abc import Mapping
from typing import Any, Final

import psycopg

from dlq_master.store.port import DatabaseDamaged
from dlq_master.store.postgres.dialect import PARTS
from dlq_master.store.postgres.line import PostgresLine

_LOCK: Final = 0x646C7131_00000001  # of the steps: two masters do not take them at once
FENCED_STATE: Final = "DQ001"  # SQLSTATE of a transaction whose master has been replaced

# Columns of each table, in SQLite's order: name and type. `!`: it may be NULL.
_TYPES: Final = {"i": "bigint", "r": "double precision", "t": 'text COLLATE "C"', "b": "bytea"}
COLUMNS: Final[Mapping[str, str]] = {
    "meta": "key:t value:t",
    "jobs": "job_id:i user:t name:t queue:t state:t version:i submit_time_s:r end_time_s:r! body:t",
    "job_specs": "job_id:i spec:b",
    "attempts": "job_id:i number:i epoch:i state:t ended_time_s:r! body:t",
    "nodes": "node_id:t state:t body:t",
    "users": "name:t body:t",
    "tokens": "token_id:t expire_time_s:r body:t",
    "requests": "user:t request_id:t digest:t result:t time_s:r",
    "journal": "sequence:i time_s:r kind:t job_id:i! attempt:i! node_id:t! cause:t actor:t data:t",
    "outbox": "sequence:i node_id:t kind:t job_id:i attempt:i body:t",
    "recordings": "job_id:i number:i order_time_s:r body:t",
    "evidence": "job_id:i number:i node_rank:i body:t",
    "teams": "name:t body:t",
    "reservations": "reservation_id:t body:t",
    "waited": "job_id:i body:t",
    "foreseen": "job_id:i body:t",
    "usage_days": "day:i user:t team:t class:t pool:t useful_gpu_s:r preempted_gpu_s:r"
    " failed_gpu_s:r transit_gpu_s:r",
    "pool_days": "day:i pool:t used_gpu_s:r idle_gpu_s:r withheld_gpu_s:r",
    "machines": "request_id:t pool:t asked_s:r end_s:r! body:t",
    "stays": "request_id:t job_id:i attempt:i part:r from_s:r until_s:r!",
    "audit_owed": "sequence:i note_id:t line:t",
    "steps": "job_id:i number:i told_s:r content:b",
    "changed_specs": "job_id:i spec:b",
    "lessons": "name:t body:t",
    "speed_days": "day:i user:t team:t class:t pool:t beyond_gpu_s:r",
    "notify_rules": "rule_id:t body:t",
    "revocations": "subject:t body:t",
    "idle_days": "day:i user:t team:t class:t pool:t idle_gpu_s:r",
    "grants": "serial:t body:t",
    "held_grants": "serial:t body:t",
}
_LATER: Final = frozenset({"grants", "held_grants"})  # made by steps of their own
_KEYS: Final[Mapping[str, int]] = {  # how many of the first columns are the key, where it is not 1
    "attempts": 2, "requests": 2, "recordings": 2, "evidence": 3, "usage_days": 5, "pool_days": 2,
    "stays": 3, "steps": 2, "speed_days": 5, "idle_days": 5,
}  # fmt: skip
_INDEXES: Final = (
    "attempts_living ON attempts (job_id) WHERE ended_time_s IS NULL",
    "requests_by_time ON requests (time_s)",
    "journal_by_job ON journal (job_id, sequence) WHERE job_id IS NOT NULL",
    "jobs_living ON jobs (job_id) WHERE end_time_s IS NULL",
    "jobs_by_end ON jobs (end_time_s) WHERE end_time_s IS NOT NULL",
    'jobs_ended_of_user ON jobs ("user", job_id) WHERE end_time_s IS NOT NULL',
    "recordings_by_time ON recordings (order_time_s)",
    "machines_open ON machines (request_id) WHERE end_s IS NULL",
    "machines_by_end ON machines (end_s) WHERE end_s IS NOT NULL",
    "stays_here ON stays (request_id) WHERE until_s IS NULL",
    "stays_by_end ON stays (until_s) WHERE until_s IS NOT NULL",
)
# A transaction of a master that has been replaced is ended by an error, in the same round trip.
# The lock is the weakest that a change of the epoch waits for: renewals of the lease do not wait.
_FENCE: Final = f"""CREATE FUNCTION hold_fence(mine bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM leader WHERE epoch = mine FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'epoch % leads no more', mine USING ERRCODE = '{FENCED_STATE}',
                DETAIL = (SELECT format('%s leads with epoch %s', holder, epoch) FROM leader);
        END IF;
    END $$"""
# One row. The epoch has an index of its own: a change of it is a change of a key (hold_fence).
_LEADER: Final = """CREATE TABLE leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL UNIQUE,
    holder text NOT NULL, addresses text NOT NULL, system_identifier numeric NOT NULL,
    timeline bigint NOT NULL, ttl_s double precision NOT NULL, renewed timestamptz NOT NULL
    ) WITH (fillfactor = 10)"""
_TURNS: Final = """CREATE TABLE turns (
    number bigint PRIMARY KEY, epoch bigint NOT NULL, changed text NOT NULL)"""


def _table(name: str) -> str:
    columns = [column.partition(":") for column in COLUMNS[name].split()]
    parts = [
        f'"{column}" {_TYPES[kind[0]]}{"" if kind.endswith("!") else " NOT NULL"}'
        for column, _, kind in columns
    ]
    if name == "jobs":
        parts += [f"{column} {_collated(kind)}" for column, kind in PARTS.values()]
    if name == "audit_owed":
        parts[0] = "sequence bigint GENERATED BY DEFAULT AS IDENTITY"
        parts[1] += " UNIQUE"
    key = ", ".join(f'"{column}"' for column in keys_of(name))
    room = " WITH (fillfactor = 75)" if name in ("jobs", "attempts", "nodes", "meta") else ""
    return f"CREATE TABLE {name} ({', '.join(parts)}, PRIMARY KEY ({key})){room}"


def keys_of(name: str) -> list[str]:
    """The columns of a table's key."""
    columns = [column.partition(":")[0] for column in COLUMNS[name].split()]
    return columns[: _KEYS.get(name, 1)]


def _collated(kind: str) -> str:
    return f'{kind} COLLATE "C"' if kind.startswith("text") else kind


# Steps in order. A step that a database has taken is never changed: a new table of SQLite is a new
# step here.
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "0001_tables": (
        *(_table(name) for name in COLUMNS if name not in _LATER),
        *(f"CREATE INDEX {one}" for one in _INDEXES),
        _LEADER,
        """INSERT INTO leader VALUES (true, 0, '', '', 0, 0, 0, to_timestamp(0))""",
        _FENCE,
        _TURNS,
    ),
    # As SQLite's: a search of names and users over a span reads this index alone.
    "0002_jobs_by_end": (
        "DROP INDEX jobs_by_end",
        'CREATE INDEX jobs_by_end ON jobs (end_time_s, "user", name) WHERE end_time_s IS NOT NULL',
    ),
    "0003_grants": (_table("grants"), _table("held_grants")),
}


def is_there(line: PostgresLine) -> bool:
    """Whether this database holds a cluster."""
    (there,) = line.own("SELECT to_regclass('leader') IS NOT NULL").fetchone() or (False,)
    return bool(there)


def make_tables(line: PostgresLine) -> None:
    """Make a cluster's empty tables. DatabaseDamaged: there is, or was, a cluster already."""
    if is_there(line) and line.own("SELECT 1 FROM meta LIMIT 1").fetchone() is not None:
        raise DatabaseDamaged("there is a cluster in this database already")
    if line.own("SELECT 1 WHERE to_regclass('leader_moved') IS NOT NULL").fetchone():
        raise DatabaseDamaged("this database holds the rows of a cluster that has moved: drop it")
    apply_steps(line)


def apply_steps(line: PostgresLine) -> None:
    """Apply the steps that this database has not taken, in one transaction."""
    line.own("BEGIN")
    try:
        line.own("SELECT pg_advisory_xact_lock($1)", [_LOCK])
        line.own("CREATE TABLE IF NOT EXISTS schema_steps (name text PRIMARY KEY)")
        taken = {name for (name,) in line.own("SELECT name FROM schema_steps")}
        for name, statements in STEPS.items():
            if name not in taken:
                for statement in statements:
                    _run(line, statement)
                line.own("INSERT INTO schema_steps VALUES ($1)", [name])
        line.own("COMMIT")
    except BaseException:
        _run(line, "ROLLBACK")
        raise


def _run(line: PostgresLine, statement: Any) -> None:
    try:
        line.own(statement)
    except psycopg.Error as error:
        raise DatabaseDamaged(f"a step of the schema failed: {error}") from error
