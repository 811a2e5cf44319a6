"""Lists of steps as rows: one for each attempt, replaced whole, packed because they repeat much."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.store.port import StoreLine
from dlq_master.store.tables.codec import REMEDY, BodyDamaged

PUT_SQL: Final = """INSERT INTO steps VALUES (?, ?, ?, ?)
    ON CONFLICT (job_id, number) DO UPDATE SET told_s = excluded.told_s, content = excluded.content
    WHERE excluded.told_s >= steps.told_s"""
_READ: Final = "SELECT number, told_s, content FROM steps WHERE job_id = ? ORDER BY number DESC"
# Of jobs that ended long ago, and whose last attempt is gone.
_BEHIND: Final = """SELECT steps.job_id, number FROM steps JOIN jobs USING (job_id)
    WHERE end_time_s < ? AND NOT EXISTS (SELECT 1 FROM attempts
        WHERE attempts.job_id = jobs.job_id AND ended_time_s IS NULL)
    LIMIT ?"""


def row_of(taken: TakenSteps) -> tuple[object, ...]:
    """The row of a list."""
    return (*taken.key, taken.told_s, zlib.compress(taken.content, 1))


def read_steps(db: StoreLine, job_ids: Sequence[JobId], *, every: bool) -> Sequence[TakenSteps]:
    """The lists of these jobs, of every attempt or of the last one that has steps, in order."""
    found: list[TakenSteps] = []
    for job_id in job_ids:
        rows = db.execute(_READ if every else f"{_READ} LIMIT 1", [job_id]).fetchall()
        found += [_taken(job_id, *row) for row in reversed(rows)]
    return found


def steps_behind(db: StoreLine, ended_before_s: float, limit: int) -> Sequence[AttemptKey]:
    """Lists that may go, at most so many."""
    rows = db.execute(_BEHIND, [ended_before_s, limit])
    return [AttemptKey(JobId(job_id), number) for job_id, number in rows]


def _taken(job_id: JobId, number: int, told_s: float, content: bytes) -> TakenSteps:
    try:
        unpacked = zlib.decompress(content)  # it has a checksum
    except zlib.error as error:
        raise BodyDamaged(f"the stored steps of job {job_id}: {error}", hint=REMEDY) from None
    return TakenSteps(AttemptKey(job_id, number), told_s, unpacked)
