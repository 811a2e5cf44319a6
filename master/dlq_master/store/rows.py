"""The only writers of the tables, all inside one transaction."""

import json
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import AUDIT_HEAD, HORIZON, Batch, Intention
from dlq_master.store.port import StoreLine
from dlq_master.store.tables.accounts import IDLE_SQL, POOLS_SQL, SPEEDS_SQL, STAYS_SQL, USES_SQL
from dlq_master.store.tables.codec import encode, with_sum
from dlq_master.store.tables.steps import PUT_SQL, row_of

Row = tuple[object, ...]


class Writes(NamedTuple):
    """How a list of a batch is written: its statement, and the row of each value."""

    name: str
    sql: str
    row: Callable[[Any], Row]


def write_batch(db: StoreLine, batch: Batch, rows: Sequence[Writes] | None = None) -> None:
    """Write all changes of a turn in the caller's transaction. `rows`: ROWS, or a
    database's own.
    """
    for name, sql, row in rows or ROWS:
        if values := getattr(batch, name):
            db.executemany(sql, [row(one) for one in values])
    for table, changes in batch.changes.items():
        _many(db, table.put_sql, [table.row_of(one) for one in batch.values(table)])
        _many(db, table.drop_sql, [(key,) for key, one in changes.items() if one is None])
    if batch.forget_requests_before_s is not None:
        db.execute("DELETE FROM requests WHERE time_s < ?", [batch.forget_requests_before_s])
    write_meta(db, batch.meta)


def write_audit_state(
    db: StoreLine, head: str, written: Sequence[str], key: str = AUDIT_HEAD
) -> None:
    """Store the audit's last line on disk, and drop lines that it has. In the caller's
    transaction.
    """
    write_meta(db, {key: head})
    _many(db, "DELETE FROM audit_owed WHERE note_id = ?", [*map(_one, written)])


def prune_journal(db: StoreLine, sequences: Sequence[int], horizon: int) -> None:
    """Drop events that retention does not keep. In the caller's transaction."""
    _many(db, "DELETE FROM journal WHERE sequence = ?", [*map(_one, sequences)])
    write_meta(db, {HORIZON: str(horizon)})


def write_steps(db: StoreLine, taken: Sequence[TakenSteps]) -> None:
    """Replace the lists of steps of these attempts. In the caller's transaction."""
    _many(db, PUT_SQL, [*map(row_of, taken)])


def drop_steps(db: StoreLine, keys: Sequence[AttemptKey]) -> None:
    """Drop lists of steps that retention does not keep. In the caller's transaction."""
    _many(db, "DELETE FROM steps WHERE job_id = ? AND number = ?", [tuple(key) for key in keys])


def write_meta(db: StoreLine, meta: Mapping[str, str]) -> None:
    """Store facts about the database itself. In the caller's transaction."""
    _many(
        db,
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        list(meta.items()),
    )


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _many(db: StoreLine, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        db.executemany(sql, rows)


def _one(value: object) -> Row:
    return (value,)


def _with_body(*columns: str) -> Callable[[Any], Row]:
    """The row of a value: its fields with a column, and its body."""
    fields_of = attrgetter(*columns)
    return lambda value: (*fields_of(value), encode(value))


def _intended(row: Intention) -> Row:
    body = {name: getattr(row, name) for name in ("epoch", "node_rank", "cause", "grace_s")}
    return (row.sequence, row.node_id, row.kind, *row.key, json.dumps(body))


# Fields of an event in the order of the journal's columns; its data are the last one.
EVENT_FIELDS: Final = "seq", "time_s", "kind", "job_id", "attempt", "node_id", "cause", "actor"
_EVENT = attrgetter(*EVENT_FIELDS)

# Each list of a batch, in the order in which they are written.
ROWS: Final[Sequence[Writes]] = tuple(
    Writes(*one)
    for one in (
        (
            "jobs",
            """INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (job_id) DO UPDATE SET user = excluded.user, queue = excluded.queue,
        state = excluded.state, version = excluded.version, end_time_s = excluded.end_time_s,
        body = excluded.body""",
            _with_body(
                "job_id",
                "user",
                "name",
                "queue",
                "state._value_",
                "version",
                "submit_time_s",
                "end_time_s",
            ),
        ),
        ("specs", "INSERT INTO job_specs VALUES (?, ?)", with_sum),
        (
            "changed_specs",
            """INSERT INTO changed_specs VALUES (?, ?)
        ON CONFLICT (job_id) DO UPDATE SET spec = excluded.spec""",
            with_sum,
        ),
        (
            "attempts",
            """INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (job_id, number) DO UPDATE SET state = excluded.state,
        ended_time_s = excluded.ended_time_s, body = excluded.body""",
            _with_body("key.job_id", "key.number", "epoch", "state._value_", "ended_time_s"),
        ),
        (
            "nodes",
            """INSERT INTO nodes VALUES (?, ?, ?)
        ON CONFLICT (node_id) DO UPDATE SET state = excluded.state, body = excluded.body""",
            _with_body("node_id", "state._value_"),
        ),
        ("forgotten_nodes", "DELETE FROM nodes WHERE node_id = ?", _one),
        (
            "requests",
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?)",
            attrgetter("user", "request_id", "digest", "result", "time_s"),
        ),
        (
            "events",
            "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            lambda event: (*_EVENT(event), _dumps(dict(event.data))),
        ),
        ("intentions", "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)", _intended),
        ("delivered", "DELETE FROM outbox WHERE sequence = ?", _one),
        (
            "recordings",
            """INSERT INTO recordings VALUES (?, ?, ?, ?)
        ON CONFLICT (job_id, number) DO UPDATE SET body = excluded.body""",
            _with_body("key.job_id", "key.number", "order_time_s"),
        ),
        (
            "evidence",
            "INSERT INTO evidence VALUES (?, ?, ?, ?)",
            _with_body("key.job_id", "key.number", "node_rank"),
        ),
        ("uses", USES_SQL, lambda row: (*row.account, *row.spent[:4])),
        ("uses", SPEEDS_SQL, lambda row: (*row.account, row.spent.normalised - row.spent.held)),
        ("idle_uses", IDLE_SQL, lambda row: (*row.account, row.spent.idle)),
        ("pool_uses", POOLS_SQL, lambda row: (row.day, row.pool, *row.level)),
        (
            "stays",
            STAYS_SQL,
            lambda one: (one.request_id, *one.key, one.part, one.from_s, one.until_s),
        ),
        (
            "audit_owed",
            """INSERT INTO audit_owed (note_id, line) VALUES (?, ?)
        ON CONFLICT (note_id) DO NOTHING""",
            tuple,
        ),
    )
)
