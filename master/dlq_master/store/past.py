"""Reads that may take long, on a connection and a thread of their own, so that turns do
not wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dlq_common.errors import Unavailable
from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.usage.cost import Costs
from dlq_master.store.batch import JournalCut, PastJobs
from dlq_master.store.list_order import ListOrder, Rank
from dlq_master.store.past_jobs import count_of, jobs_by_number, jobs_in_order
from dlq_master.store.port import StoreLine
from dlq_master.store.tables.accounts import Books, read_books, read_costs
from dlq_master.store.tables.steps import read_steps, steps_behind

T = TypeVar("T")


class Past:
    """Reads ended jobs. Other Python threads run while the database searches."""

    def __init__(self, past: StoreLine) -> None:
        self._past = past
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-past")
        self._closed = False

    def close(self) -> None:
        """End the present read, then close the thread and the connection."""
        self._closed = True
        self._past.interrupt()
        self._thread.shutdown(cancel_futures=True)
        self._past.close()

    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
        """Ended jobs with ids above `after`, by id; at most `limit`."""
        return await self._in_thread(lambda: jobs_by_number(self._past, wanted, after, limit))

    async def past_in_order(
        self, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
    ) -> Sequence[Job]:
        """Ended jobs behind a place of this order; at most `limit`."""
        return await self._in_thread(lambda: jobs_in_order(self._past, wanted, order, after, limit))

    async def past_count(self, wanted: PastJobs) -> int:
        """The number of ended jobs in a selection."""
        return await self._in_thread(lambda: count_of(self._past, wanted))

    async def books(self, first_day: int, last_day: int, now_s: float) -> Books:
        """The usage from the first day to the last, at most until now."""
        return await self._in_thread(lambda: read_books(self._past, first_day, last_day, now_s))

    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs:
        """The costs from the first day to the last, at most until now."""
        return await self._in_thread(lambda: read_costs(self._past, first_day, last_day, now_s))

    async def steps(self, job_ids: Sequence[JobId], *, every: bool) -> Sequence[TakenSteps]:
        """The steps of these jobs: of every attempt, or of the last one that has any."""
        return await self._in_thread(lambda: read_steps(self._past, job_ids, every=every))

    async def steps_behind(self, ended_before_s: float, limit: int) -> Sequence[AttemptKey]:
        """Lists of steps of jobs that ended before this; at most `limit`."""
        return await self._in_thread(lambda: steps_behind(self._past, ended_before_s, limit))

    async def journal_cut(self, from_s: float, most: int) -> JournalCut:
        """The events older than `from_s`, or beyond the newest `most`. Never the newest event."""
        return await self._in_thread(lambda: _journal_cut(self._past, from_s, most))

    async def journal_behind(self, cut: JournalCut, after: int, limit: int) -> Sequence[int]:
        """Sequences above `after` that the cut removes, in order; at most `limit`."""
        return await self._in_thread(lambda: _journal_behind(self._past, cut, after, limit))

    async def _in_thread(self, read: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, read)
        except Exception:
            if self._closed:  # it was interrupted
                raise Unavailable("the store is closed") from None
            raise


def _journal_cut(db: StoreLine, from_s: float, most: int) -> JournalCut:
    newest = db.execute("SELECT coalesce(max(sequence), 0) FROM journal").fetchone()[0]
    beyond = db.execute(
        "SELECT sequence FROM journal ORDER BY sequence DESC LIMIT 1 OFFSET ?", [most]
    ).fetchone()
    by_count = 0 if beyond is None else beyond[0]
    by_age = _last_before(db, from_s, newest)
    # The newest tells a start how far time and sequences have come.
    return JournalCut(min(by_age, newest - 1), min(by_count, newest - 1), from_s)


def _last_before(db: StoreLine, from_s: float, newest: int) -> int:
    """The last sequence with a time before this. Times rise with sequences, so it is found by
    bisection.
    """
    low, high = 0, newest  # low is before, what follows high is not
    while low < high:
        middle = (low + high + 1) // 2
        found = db.execute(
            "SELECT sequence, time_s FROM journal WHERE sequence >= ? ORDER BY sequence LIMIT 1",
            [middle],
        ).fetchone()
        if found is not None and found[1] < from_s:
            low = max(found[0], middle)
        else:
            high = middle - 1
    return low


# The events of no job, and of ended jobs whose last attempt is gone.
_BEHIND = """SELECT sequence FROM journal LEFT JOIN jobs USING (job_id)
    WHERE sequence > :after AND sequence <= :horizon
    AND (jobs.job_id IS NULL OR (
        end_time_s IS NOT NULL AND (sequence <= :by_count OR end_time_s < :ended_from_s)
        AND NOT EXISTS (SELECT 1 FROM attempts
            WHERE attempts.job_id = jobs.job_id AND ended_time_s IS NULL)))
    ORDER BY sequence LIMIT :limit"""


def _journal_behind(db: StoreLine, cut: JournalCut, after: int, limit: int) -> Sequence[int]:
    asked = {**cut._asdict(), "horizon": cut.horizon, "after": after, "limit": limit}
    return [sequence for (sequence,) in db.execute(_BEHIND, asked)]
