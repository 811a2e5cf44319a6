"""Reads that may take long, on a connection and a thread of their own: turns do not wait for them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from dlq_master.model.job import Job
from dlq_master.store.batch import PastJobs
from dlq_master.store.codec import decode
from dlq_master.store.open import connect

T = TypeVar("T")


class Past:
    """What has ended. SQLite gives the interpreter away while it searches."""

    def __init__(self, path: Path) -> None:
        self._db: Database = connect(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-past")

    def close(self) -> None:
        """End what is being read, then give thread and connection back."""
        self._db.conn.interrupt()
        self._thread.shutdown(cancel_futures=True)
        self._db.close()

    async def jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
        """Ended jobs with an id above `after`, in the order of their ids; at most `limit`."""
        return await self._in_thread(lambda: _jobs(self._db, wanted, after, limit))

    async def _in_thread(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read)


def _jobs(db: Database, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
    if wanted.ended_from_s is not None and wanted.user is None:
        after = max(after, _before_first(db, wanted))
    terms = list(_terms(wanted))
    # Without an owner the rows are read in their own order: any other would have to be sorted.
    index = "NOT INDEXED" if wanted.user is None else "INDEXED BY jobs_ended_of_user"
    where = "".join(f" AND {term}" for term, _ in terms)
    rows = db.execute(
        f"SELECT body FROM jobs {index} WHERE end_time_s IS NOT NULL AND job_id > ?{where}"
        " ORDER BY job_id LIMIT ?",
        [after, *(value for _, values in terms for value in values), limit],
    )
    return [decode(body, Job) for (body,) in rows]


def _before_first(db: Database, wanted: PastJobs) -> int:
    """No job of the span has this number or a lower one: what is older need not be looked at."""
    (first,) = db.execute(
        "SELECT min(job_id) FROM jobs INDEXED BY jobs_by_end WHERE end_time_s >= ?",
        [wanted.ended_from_s],
    ).fetchone()
    if first is None:
        (first,) = db.execute("SELECT coalesce(max(job_id), 0) + 1 FROM jobs").fetchone()
    return int(first) - 1


def _terms(wanted: PastJobs) -> Iterator[tuple[str, Sequence[object]]]:
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
