"""Reads of data that is not in memory: specs, ended attempts, the journal, answered requests.

It has one read-only connection, used in the loop's thread, for reads of microseconds. `past.py`
reads lists in a thread of its own. In WAL mode both see the last commit.
"""

import json
import math
from collections.abc import Iterator, Sequence, Set
from typing import Any, TypeVar

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.lessons import Lesson
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import Owner
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.machines.fleet import DAY_S, MOST_ENDED
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import Node
from dlq_master.store.batch import (
    ALL_ENDED,
    BATCH,
    MOST_COMPLETED,
    MOST_RECORDINGS,
    TAUGHT,
    Intention,
    Loaded,
    MemoryWindow,
    StoredRequest,
)
from dlq_master.store.past import Past
from dlq_master.store.port import StoreLine
from dlq_master.store.rows import EVENT_FIELDS
from dlq_master.store.stored_tables import (
    FORESEEN,
    GRANTS,
    HELD_GRANTS,
    MACHINES,
    NOTIFY_RULES,
    RESERVATIONS,
    REVOCATIONS,
    TEAMS,
    TOKENS,
    USERS,
)
from dlq_master.store.tables.codec import decode, decode_all, spec_of
from dlq_master.store.tables.table import Table
from dlq_master.store.tables.tenants import Waited

T = TypeVar("T")
_SMALL = {
    table.name: table for table in (USERS, TOKENS, TEAMS, RESERVATIONS, NOTIFY_RULES, REVOCATIONS)
}
AT_ONCE = 500  # bodies that are decoded in one pass
_LIVING = "SELECT body FROM jobs WHERE end_time_s IS NULL"
_RECENT = """SELECT body FROM jobs WHERE end_time_s >= ?
    ORDER BY end_time_s DESC, job_id DESC LIMIT ?"""
# Cancelled, but their last attempt still saves or is silent.
_LEAVING = """SELECT body FROM jobs WHERE end_time_s IS NOT NULL
    AND job_id IN (SELECT job_id FROM attempts WHERE ended_time_s IS NULL)"""
_WAITED = """SELECT body FROM waited
    WHERE job_id IN (SELECT job_id FROM jobs WHERE end_time_s IS NULL) ORDER BY job_id"""
_LATE_MACHINES = """SELECT body FROM machines WHERE end_s IS NOT NULL
        AND end_s > (SELECT max(end_s) FROM machines WHERE end_s IS NOT NULL) - :day_s
    UNION SELECT body FROM (
        SELECT body FROM machines WHERE end_s IS NOT NULL ORDER BY end_s DESC LIMIT :most)
        AS newest"""
_EVENT = "SELECT sequence, time_s, kind, job_id, attempt, node_id, cause, actor, data FROM journal"

_OWNER = """SELECT user, coalesce(json_extract(body, '$.person'), ''), submit_time_s
    FROM jobs WHERE job_id = ?"""


class StoreReader(Past):
    """Named queries on the committed state; those about the past run in their own thread."""

    def __init__(self, db: StoreLine, past: StoreLine) -> None:
        super().__init__(past)
        self._db = db

    def close(self) -> None:
        super().close()
        self._db.close()

    def load(self, window: MemoryWindow = ALL_ENDED) -> Loaded:
        """Everything that a starting master needs, in a fraction of a second for 100,000 living
        jobs.

        Ages of ended jobs count from the newest event, since no clock is known yet.
        """
        db = self._db
        newest = db.execute("SELECT sequence, time_s FROM journal ORDER BY sequence DESC LIMIT 1")
        last_event, last_time_s = newest.fetchone() or (0, 0.0)
        recent, complete_from_s = self._recent(window, last_time_s)
        (last_job,) = db.execute("SELECT coalesce(max(job_id), 0) FROM jobs").fetchone()
        jobs = {job.job_id: job for sql in (_LIVING, _LEAVING) for job in self._each(sql, Job)}
        jobs |= recent
        meta = dict(db.execute("SELECT key, value FROM meta WHERE key != ?", [BATCH]).fetchall())
        return Loaded(
            meta=meta,
            jobs=tuple(jobs[job_id] for job_id in sorted(jobs)),
            attempts=self._all(
                "SELECT body FROM attempts WHERE ended_time_s IS NULL ORDER BY job_id", Attempt
            ),
            nodes=self._all("SELECT body FROM nodes ORDER BY node_id", Node),
            users=self._rows(USERS),
            tokens=self._rows(TOKENS),
            intentions=self._intentions(),
            last_event=last_event,
            last_time_s=last_time_s,
            last_job=last_job,
            complete_from_s=complete_from_s,
            completed=() if TAUGHT in meta else self._completed(jobs.keys()),
            lessons=tuple(self._each("SELECT body FROM lessons", Lesson)),
            recordings=self._recordings(),
            teams=self._rows(TEAMS),
            reservations=self._rows(RESERVATIONS),
            notify_rules=self._rows(NOTIFY_RULES),
            revocations=self._rows(REVOCATIONS),
            grants=self._rows(GRANTS),
            held_grants=self._rows(HELD_GRANTS),
            waited=self._all(_WAITED, Waited),
            foreseen=self._rows(FORESEEN),
            machines=self._machines(),
            audit_owed=tuple(
                db.execute("SELECT note_id, line FROM audit_owed ORDER BY sequence").fetchall()
            ),
        )

    def _recent(self, window: MemoryWindow, now_s: float) -> tuple[dict[JobId, Job], float]:
        """The ended jobs of the window, and the end from which on none is missing."""
        from_s = now_s - window.kept_s
        jobs = {job.job_id: job for job in self._each(_RECENT, Job, [from_s, window.most])}
        if len(jobs) < window.most:
            return jobs, from_s
        return jobs, min((job.end_time_s or 0.0 for job in jobs.values()), default=math.inf)

    def _completed(self, loaded: Set[int]) -> tuple[Job, ...]:
        rows = self._db.execute(
            "SELECT job_id, body FROM jobs WHERE end_time_s IS NOT NULL AND state = 'completed'"
            " ORDER BY end_time_s DESC, job_id DESC LIMIT ?",
            [MOST_COMPLETED + len(loaded)],
        )
        left = [body for job_id, body in rows if job_id not in loaded]
        return tuple(decode(body, Job) for body in reversed(left[:MOST_COMPLETED]))

    def _recordings(self) -> tuple[Recording, ...]:
        rows = self._db.execute(
            "SELECT body FROM recordings ORDER BY order_time_s DESC, job_id DESC, number DESC "
            "LIMIT ?",
            [MOST_RECORDINGS],
        ).fetchall()
        return tuple(decode(body, Recording) for (body,) in reversed(rows))

    def _machines(self) -> tuple[Machine, ...]:
        ended = self._db.execute(_LATE_MACHINES, {"most": MOST_ENDED, "day_s": DAY_S}).fetchall()
        here = self._all("SELECT body FROM machines WHERE end_s IS NULL", Machine)
        found = (*here, *(decode(body, Machine) for (body,) in ended))
        return tuple(sorted(found, key=lambda one: one.request_id))

    def _rows(self, table: Table[Any, T]) -> tuple[T, ...]:
        return self._all(table.read_sql, table.kind)

    def _all(self, sql: str, kind: type[T]) -> tuple[T, ...]:
        return tuple(self._each(sql, kind))

    def _each(self, sql: str, kind: type[T], parameters: Sequence[object] = ()) -> Iterator[T]:
        """The values of the bodies that a query finds."""
        rows = self._db.execute(sql, parameters)
        while some := rows.fetchmany(AT_ONCE):
            yield from decode_all([body for (body,) in some], kind)

    def _intentions(self) -> tuple[Intention, ...]:
        rows = self._db.execute(
            "SELECT sequence, node_id, kind, job_id, attempt, body FROM outbox ORDER BY sequence"
        )
        return tuple(map(intention_of, rows))

    def small_table(self, name: str) -> tuple[Any, ...]:
        """All rows of a small table that a start reads."""
        return self._machines() if name == MACHINES.name else self._rows(_SMALL[name])

    def waited(self, job_id: JobId) -> Waited | None:
        """How long a job has waited for each reason, as last written; None: nothing was."""
        row = self._db.execute("SELECT body FROM waited WHERE job_id = ?", [job_id]).fetchone()
        return None if row is None else decode(row[0], Waited)

    def job(self, job_id: JobId) -> Job | None:
        """A living or ended job; None: unknown."""
        row = self._db.execute("SELECT body FROM jobs WHERE job_id = ?", [job_id]).fetchone()
        return None if row is None else decode(row[0], Job)

    def owner(self, job_id: JobId) -> Owner | None:
        """The owner of a job; None: unknown."""
        row = self._db.execute(_OWNER, [job_id]).fetchone()
        return None if row is None else Owner(*row)

    def spec(self, job_id: JobId) -> bytes | None:
        """The spec as it was submitted, or by the negative id the changed one; None: unknown."""
        table = "changed_specs" if job_id < 0 else "job_specs"
        found = self._db.execute(f"SELECT spec FROM {table} WHERE job_id = ?", [abs(job_id)])
        row = found.fetchone()
        return None if row is None else spec_of(bytes(row[0]))

    def attempts(self, job_id: JobId) -> tuple[Attempt, ...]:
        """All attempts of a job, oldest first."""
        rows = self._db.execute(
            "SELECT body FROM attempts WHERE job_id = ? ORDER BY number", [job_id]
        )
        return tuple(decode(body, Attempt) for (body,) in rows)

    def recordings(self, job_id: JobId) -> tuple[Recording, ...]:
        """All starts of a job whose traffic was to be recorded, oldest first."""
        rows = self._db.execute(
            "SELECT body FROM recordings WHERE job_id = ? ORDER BY number", [job_id]
        )
        return tuple(decode(body, Recording) for (body,) in rows)

    def evidence(self, key: AttemptKey) -> tuple[Evidence, ...]:
        """The reports of the nodes of an attempt, in rank order."""
        rows = self._db.execute(
            "SELECT body FROM evidence WHERE job_id = ? AND number = ? ORDER BY node_rank", [*key]
        )
        return tuple(decode(body, Evidence) for (body,) in rows)

    def request(self, user: str, request_id: str) -> StoredRequest | None:
        """An answered request of this user; None: there is none."""
        row = self._db.execute(
            "SELECT user, request_id, digest, result, time_s FROM requests"
            " WHERE user = ? AND request_id = ?",
            [user, request_id],
        ).fetchone()
        return None if row is None else StoredRequest(*row)

    def requests(self, user: str, request_ids: Sequence[str]) -> Sequence[StoredRequest]:
        """The answered ones of these requests, in one search."""
        rows = self._db.execute(
            "SELECT user, request_id, digest, result, time_s FROM requests"
            " WHERE user = ? AND request_id IN (SELECT value FROM json_each(?))",
            [user, json.dumps(request_ids)],
        )
        return [StoredRequest(*row) for row in rows]

    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> tuple[JournalEvent, ...]:
        """Events with sequences above `after`, oldest first; of one job, or of all."""
        if job_id is None:
            rows = self._db.execute(
                f"{_EVENT} WHERE sequence > ? ORDER BY sequence LIMIT ?", [after, limit]
            )
        else:
            rows = self._db.execute(
                f"{_EVENT} WHERE job_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
                [job_id, after, limit],
            )
        return tuple(_event(row) for row in rows)


def intention_of(row: tuple[Any, ...]) -> Intention:
    """The command of a row of the outbox."""
    sequence, node, kind, job, number, body = row
    key = AttemptKey(JobId(job), number)
    return Intention(sequence, NodeId(node), kind, key, **_intended(body))


def _intended(body: str) -> dict[str, Any]:
    """The stored command. Old ones hold a delay, for which the attempt has a newer value."""
    fields: dict[str, Any] = json.loads(body)
    fields.pop("delay_s", None)
    return fields


def _event(row: tuple[Any, ...]) -> JournalEvent:
    *values, data = row
    return JournalEvent(**dict(zip(EVENT_FIELDS, values, strict=True)), data=json.loads(data))
