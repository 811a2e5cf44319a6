"""One function for each kind of row: the only writers of their tables, all inside one
transaction.
"""

import json
from collections.abc import Mapping, Sequence

from sqlite_utils import Database

from dlq_master.store.batch import AUDIT_HEAD, HORIZON, Batch
from dlq_master.store.tables.accounts import POOLS_SQL, USES_SQL, pool_values, use_values
from dlq_master.store.tables.codec import encode
from dlq_master.store.tables.costs import STAYS_SQL, stay_values


def write_batch(db: Database, batch: Batch) -> None:
    """Write everything a turn changed. The caller holds the transaction."""
    _write_jobs(db, batch)
    _write_attempts(db, batch)
    _write_nodes(db, batch)
    _write_tables(db, batch)
    _write_requests(db, batch)
    _write_journal(db, batch)
    _write_outbox(db, batch)
    _write_traffic(db, batch)
    _write_usage(db, batch)
    _many(db, "INSERT OR IGNORE INTO audit_owed (note_id, line) VALUES (?, ?)", batch.audit_owed)
    write_meta(db, batch.meta)


def write_audit_state(db: Database, head: str, written: Sequence[str]) -> None:
    """The audit's last line that is on disk; lines that it has need not be kept here any more."""
    write_meta(db, {AUDIT_HEAD: head})
    _many(db, "DELETE FROM audit_owed WHERE note_id = ?", [(one,) for one in written])


def prune_journal(db: Database, sequences: Sequence[int], horizon: int) -> None:
    """Drop events that retention does not keep. The caller holds the transaction."""
    _many(db, "DELETE FROM journal WHERE sequence = ?", [(seq,) for seq in sequences])
    write_meta(db, {HORIZON: str(horizon)})


def write_meta(db: Database, meta: Mapping[str, str]) -> None:
    """Facts about the database itself. The caller holds the transaction."""
    _many(
        db,
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        list(meta.items()),
    )


def _many(db: Database, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    """`executemany`, seen by the tracer that walks the crash points."""
    if rows:
        if db._tracer is not None:
            db._tracer(sql, None)
        db.conn.executemany(sql, rows)


def _write_jobs(db: Database, batch: Batch) -> None:
    _many(
        db,
        """INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (job_id) DO UPDATE SET user = excluded.user, queue = excluded.queue, state = excluded.state,
        version = excluded.version, end_time_s = excluded.end_time_s, body = excluded.body""",  # noqa: E501
        [
            (
                job.job_id,
                job.user,
                job.name,
                job.queue,
                job.state.value,
                job.version,
                job.submit_time_s,
                job.end_time_s,
                encode(job),
            )
            for job in batch.jobs
        ],
    )
    _many(db, "INSERT INTO job_specs VALUES (?, ?)", list(batch.specs))


def _write_attempts(db: Database, batch: Batch) -> None:
    _many(
        db,
        """INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (job_id, number) DO UPDATE SET state = excluded.state,
        ended_time_s = excluded.ended_time_s, body = excluded.body""",
        [
            (
                attempt.key.job_id,
                attempt.key.number,
                attempt.epoch,
                attempt.state.value,
                attempt.ended_time_s,
                encode(attempt),
            )
            for attempt in batch.attempts
        ],
    )


def _write_nodes(db: Database, batch: Batch) -> None:
    _many(
        db,
        """INSERT INTO nodes VALUES (?, ?, ?)
        ON CONFLICT (node_id) DO UPDATE SET state = excluded.state, body = excluded.body""",
        [(node.node_id, node.state.value, encode(node)) for node in batch.nodes],
    )
    _many(db, "DELETE FROM nodes WHERE node_id = ?", [(name,) for name in batch.forgotten_nodes])


def _write_tables(db: Database, batch: Batch) -> None:
    for table, changes in batch.changes.items():
        _many(db, table.put_sql, [table.row_of(one) for one in batch.values(table)])
        _many(db, table.drop_sql, [(key,) for key, one in changes.items() if one is None])


def _write_requests(db: Database, batch: Batch) -> None:
    _many(
        db,
        "INSERT INTO requests VALUES (?, ?, ?, ?, ?)",
        [(r.user, r.request_id, r.digest, r.result, r.time_s) for r in batch.requests],
    )
    if batch.forget_requests_before_s is not None:
        db.execute("DELETE FROM requests WHERE time_s < ?", [batch.forget_requests_before_s])


def _write_journal(db: Database, batch: Batch) -> None:
    _many(
        db,
        "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                event.seq,
                event.time_s,
                event.kind,
                event.job_id,
                event.attempt,
                event.node_id,
                event.cause,
                event.actor,
                json.dumps(dict(event.data), separators=(",", ":")),
            )
            for event in batch.events
        ],
    )


def _write_outbox(db: Database, batch: Batch) -> None:
    _many(
        db,
        "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                row.sequence,
                row.node_id,
                row.kind,
                row.key.job_id,
                row.key.number,
                json.dumps(
                    {
                        "epoch": row.epoch,
                        "node_rank": row.node_rank,
                        "cause": row.cause,
                        "grace_s": row.grace_s,
                    }
                ),
            )
            for row in batch.intentions
        ],
    )
    _many(db, "DELETE FROM outbox WHERE sequence = ?", [(seq,) for seq in batch.delivered])


def _write_traffic(db: Database, batch: Batch) -> None:
    _many(
        db,
        """INSERT INTO recordings VALUES (?, ?, ?, ?)
        ON CONFLICT (job_id, number) DO UPDATE SET body = excluded.body""",
        [(*row.key, row.order_time_s, encode(row)) for row in batch.recordings],
    )
    _many(
        db,
        "INSERT INTO evidence VALUES (?, ?, ?, ?)",
        [(*row.key, row.node_rank, encode(row)) for row in batch.evidence],
    )


def _write_usage(db: Database, batch: Batch) -> None:
    _many(db, USES_SQL, use_values(batch.uses))
    _many(db, POOLS_SQL, pool_values(batch.pool_uses))
    _many(db, STAYS_SQL, stay_values(batch.stays))
