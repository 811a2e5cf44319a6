"""One watch of the caller's jobs for all that wait on a line: futures, one stream, one thread.

The stream tells only how attempts and jobs end or begin to run. It is resumed by its cursor over a
lost line and a restarted master. Every minute the jobs are read anew. When the master stays away
for too long, every waiter gets the error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias

from dlq.v1 import event_pb2, job_pb2
from dlq_client.jobs import MOST_NAMED, Jobs
from dlq_client.line.connection import Connection
from dlq_client.watch import OUTAGE_S, watch_events
from dlq_common.errors import CursorExpired, DlqError, NotFound, Unavailable

Holds: TypeAlias = Callable[[job_pb2.Job], bool]
JobFuture: TypeAlias = "Future[job_pb2.Job]"

ROUND_S = 60.0
ENDS = event_pb2.EventFilter(
    kinds=[
        "job_completed", "job_failed", "job_timed_out", "job_cancelled", "job_poisoned",
        "attempt_running", "attempt_returned_running", "attempt_succeeded", "attempt_failed",
        "attempt_preempted", "attempt_preempted_lost", "attempt_cancelled", "attempt_timed_out",
        "attempt_node_lost", "attempt_start_failed", "attempt_measured",
    ]
)  # fmt: skip


class Waiter(NamedTuple):
    """A future, and the value of the job that it waits for."""

    holds: Holds
    future: JobFuture


class JobWatch:
    """The futures that wait. Threads may share it. Close it before its connection."""

    def __init__(
        self,
        connection: Connection,
        say: Callable[[str], None],
        *,
        outage_s: float = OUTAGE_S,
        round_s: float = ROUND_S,
    ) -> None:
        """`say`: tells people of an outage, once for each."""
        self._connection = connection
        self._say = say
        self._outage_s = outage_s
        self._round_s = round_s
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Waiter]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def until(self, job_ids: Iterable[str], holds: Holds) -> dict[str, JobFuture]:
        """A future for each job, done once `holds` is true for a value of the job. A future that is
        cancelled waits no more. NotFound comes through the future.
        """
        futures: dict[str, JobFuture] = {job_id: Future() for job_id in job_ids}
        with self._lock:
            if self._closed:
                raise closed_line()
            for job_id, future in futures.items():
                self._waiting.setdefault(job_id, []).append(Waiter(holds, future))
            begins = self._thread is None and bool(futures)
            if begins:
                self._thread = threading.Thread(target=self._run, name="dlq-watch", daemon=True)
                self._thread.start()
        for job_id, future in futures.items():
            future.add_done_callback(partial(self._forget, job_id))
        if not begins:  # the stream may have told the end already; a new thread reads all jobs
            with suppress(Unavailable):  # the next round reads them
                self._look(list(futures))
        return futures

    def close(self) -> None:
        """Wait for nothing any more: every waiter gets an error."""
        with self._lock:
            self._closed = True
        self._fail(closed_line())

    def _run(self) -> None:
        patience = self._connection.patience(self._outage_s)
        while True:
            with self._lock:
                job_ids = list(self._waiting)
                if not job_ids or self._closed:
                    self._thread = None
                    return
            try:
                cursor = self._look(job_ids)
                patience.restored()
                self._one_round(cursor)
            except CursorExpired:
                continue
            except Unavailable as error:
                if not patience.wait():
                    self._fail(error)
            except DlqError as error:
                self._fail(error)
            except ValueError:  # a call on a closed channel
                self._fail(closed_line())

    def _one_round(self, cursor: int) -> None:
        for message in watch_events(
            self._connection,
            chosen=ENDS,
            cursor=cursor,
            until_s=self._connection.clock.boottime_s() + self._round_s,
            outage_s=self._outage_s,
            on_lost=self._lost,
        ):
            if message.HasField("job"):
                self._tell(message.job)
            if not self._waiting or self._closed:
                return

    def _lost(self, error: DlqError) -> None:
        if not self._closed:
            self._say(f"{error.what}; still trying")

    def _look(self, job_ids: Sequence[str]) -> int:
        """Tell the present values; the cursor from which a watch misses nothing."""
        cursors = []
        for first in range(0, len(job_ids), MOST_NAMED):
            part = job_ids[first : first + MOST_NAMED]
            listed = Jobs(self._connection).list(job_ids=part)
            cursors.append(listed.cursor)
            for job in listed.jobs:
                self._tell(job)
            for job_id in set(part) - {job.job_id for job in listed.jobs}:
                error = NotFound(f"there is no job {job_id}", kind="job", id=job_id)
                for waiter in self._taken(job_id, lambda _: True):
                    _end(waiter.future, error)
        return min(cursors, default=-1)

    def _tell(self, job: job_pb2.Job) -> None:
        for waiter in self._taken(job.job_id, lambda waiter: waiter.holds(job)):
            _end(waiter.future, job)

    def _taken(self, job_id: str, wanted: Callable[[Waiter], bool]) -> list[Waiter]:
        """Such waiters of a job, which wait no more."""
        with self._lock:
            waiters = self._waiting.pop(job_id, [])
            taken = [waiter for waiter in waiters if wanted(waiter)]
            left = [waiter for waiter in waiters if waiter not in taken]
            if left:
                self._waiting[job_id] = left
        return taken

    def _forget(self, job_id: str, future: JobFuture) -> None:
        if future.cancelled():
            self._taken(job_id, lambda waiter: waiter.future is future)

    def _fail(self, error: DlqError) -> None:
        with self._lock:
            waiters = [waiter for each in self._waiting.values() for waiter in each]
            self._waiting.clear()
        for waiter in waiters:
            _end(waiter.future, error)


def _end(future: JobFuture, found: job_pb2.Job | DlqError) -> None:
    """End it, unless its owner has cancelled it meanwhile."""
    try:
        if isinstance(found, DlqError):
            future.set_exception(found)
        else:
            future.set_result(found)
    except InvalidStateError:
        return


def closed_line() -> Unavailable:
    """The error of a wait on a line that its owner has closed."""
    return Unavailable("this connection is closed; the jobs go on")
