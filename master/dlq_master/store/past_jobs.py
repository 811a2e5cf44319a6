"""Ended jobs on disk: SQLite searches, orders and counts them.

Words are looked up in the index by end, which has users and names too. Only rows with the words are
read then.
"""

from collections.abc import Iterator, Sequence

from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import PastJobs
from dlq_master.store.list_order import (
    BY_NUMBER,
    ListOrder,
    Rank,
    Term,
    type_term,
    word_terms,
)
from dlq_master.store.port import StoreLine
from dlq_master.store.tables.codec import decode

# A job without a person belongs to the owner of the name at its submit time.
_PERSON = """CASE WHEN coalesce(json_extract(body, '$.person'), '') <> ''
    THEN json_extract(body, '$.person') = ? ELSE submit_time_s >= ? END"""


def jobs_by_number(db: StoreLine, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
    """Those with ids above `after`, by id; at most `limit`."""
    if wanted.words and wanted.user is None and after == 0:
        return jobs_in_order(db, wanted, BY_NUMBER, None, limit)
    if wanted.ended_from_s is not None and after == 0:
        after = _before_first(db, wanted)
    # Without an owner the rows are read in their own order: any other would have to be sorted.
    index = "NOT INDEXED" if wanted.user is None else "INDEXED BY jobs_ended_of_user"
    where, values = _where([("job_id > ?", [after]), *_terms(wanted)])
    return _read(db, f"{index} WHERE {where} ORDER BY job_id LIMIT ?", [*values, limit])


def jobs_in_order(
    db: StoreLine, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
) -> Sequence[Job]:
    """Those behind a place of this order; at most `limit`. All that fit are read."""
    behind, by = order.sql(after)
    where, values = _where([behind, *_terms(wanted)])
    chosen = f"WHERE {where} ORDER BY {by} LIMIT ?"
    if wanted.words and wanted.user is None:
        found = f"SELECT job_id FROM jobs INDEXED BY jobs_by_end {chosen}"
        chosen = f"WHERE job_id IN ({found}) ORDER BY {by}"
    return _read(db, chosen, [*values, limit])


def _read(db: StoreLine, chosen: str, values: Sequence[object]) -> Sequence[Job]:
    rows = db.execute(f"SELECT body FROM jobs {chosen}", list(values))
    return [decode(body, Job) for (body,) in rows]


def count_of(db: StoreLine, wanted: PastJobs) -> int:
    """The number of those jobs."""
    where, values = _where(list(_terms(wanted)))
    (count,) = db.execute(f"SELECT count(*) FROM jobs WHERE {where}", values).fetchone()
    return int(count)


def _where(terms: Sequence[Term]) -> Term:
    told = " AND ".join(["end_time_s IS NOT NULL", *[term for term, _ in terms]])
    return told, [value for _, values in terms for value in values]


def _before_first(db: StoreLine, wanted: PastJobs) -> int:
    """No job of the span has this id or a lower one, so that the search can stop there."""
    (first,) = db.execute(
        "SELECT min(job_id) FROM jobs INDEXED BY jobs_by_end WHERE end_time_s >= ?",
        [wanted.ended_from_s],
    ).fetchone()
    if first is None:
        (first,) = db.execute("SELECT coalesce(max(job_id), 0) + 1 FROM jobs").fetchone()
    return int(first) - 1


def _terms(wanted: PastJobs) -> Iterator[Term]:
    if wanted.user is not None:
        yield "user = ?", [wanted.user]
    if wanted.queue:
        yield "queue = ?", [wanted.queue]
    if wanted.name:
        yield "name = ?", [wanted.name]
    if wanted.states:
        marks = ", ".join("?" * len(wanted.states))
        yield f"state IN ({marks})", sorted(wanted.states)
    if wanted.ended_from_s is not None:
        yield "end_time_s >= ?", [wanted.ended_from_s]
    if wanted.ended_before_s is not None:
        yield "end_time_s < ?", [wanted.ended_before_s]
    if wanted.team:
        yield "json_extract(body, '$.team') = ?", [wanted.team]
    if wanted.gpu_type:
        yield type_term(wanted.gpu_type)
    if wanted.person is not None:
        yield _PERSON, [wanted.person, wanted.since_s]
    yield from word_terms(wanted.words)
