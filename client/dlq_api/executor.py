"""Functions as jobs, behind the interface of `concurrent.futures`.

Each call is a job, and each map is one array. A job that loses its GPUs is queued again, and its
function is called anew from the start, unless it saves by dlq_train. All futures share one stream.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

from dlq.v1 import job_pb2
from dlq_api.ends import FunctionLost, failure_of, is_over, is_well
from dlq_api.functions import LARGEST_RESULT_BYTES, Call, FunctionFiles, default_place
from dlq_api.job import Job
from dlq_api.line import Connected
from dlq_api.submitting import submitted, submitted_array
from dlq_api.watching import JobFuture
from dlq_api.words import SubmitWords, Text
from dlq_cli.words import shown_state
from dlq_common.errors import DlqError, InvalidRequest, Unavailable
from dlq_common.text.names import job_name_from

T = TypeVar("T")


class FunctionFuture(futures.Future[T], Generic[T]):
    """The value of a function in a job. `job` is the job; cancelling the future cancels it."""

    job: Job
    _asked = False

    def cancel(self) -> bool:
        """Ask for the end of the job; the future is cancelled once the job has ended so."""
        if self.done():
            return self.cancelled()
        self._asked = True
        self.job.cancel()
        return True

    def _is_cancelled_by(self, job: job_pb2.Job) -> bool:
        """Whether that was asked for, and is how the job has ended."""
        return self._asked and shown_state(job) == "cancelled"

    def _end_cancelled(self) -> None:
        super().cancel()
        self.set_running_or_notify_cancel()


class Executor(futures.Executor):
    """Runs functions as jobs of a cluster.

    `words`: those of `submit`, for each job. `concurrent`: how many tasks of one array run at a
    time; 0: all. `directory`: a place of the user's that the nodes see too, by default
    $DLQ_FUNCTIONS or ~/.dlq/functions. `python`: the interpreter of the jobs, which needs dlq.
    `keep`: leave the files there. `largest_result`: in bytes.
    """

    def __init__(
        self,
        cluster: Connected,
        *,
        concurrent: int = 0,
        directory: Text | None = None,
        python: Text = sys.executable,
        keep: bool = False,
        largest_result: int = LARGEST_RESULT_BYTES,
        **words: Unpack[SubmitWords],
    ) -> None:
        for word in ("array", "command", "run"):
            if word in words:
                raise InvalidRequest(f"{word}: an executor sets it itself", field=word)
        self._line = cluster.line
        self._concurrent = concurrent
        self._root = default_place() if directory is None else Path(directory)
        self._python = python
        self._keep = keep
        self._largest_result = largest_result
        self._words = words
        self._lock = threading.Lock()
        self._pending: set[FunctionFuture[Any]] = set()
        self._closed = False
        # Results are read apart from the watch: unpickling runs code of the user.
        self._reader = futures.ThreadPoolExecutor(1, "dlq-results")

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> FunctionFuture[T]:
        """Queue one call as a job. Raises as `Cluster.submit`; then there is no job."""
        (found,) = self._start(fn, [(args, kwargs)], array=False)
        return found

    def map_array(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[FunctionFuture[T]]:
        """Queue a call for each group of arguments, all as one array: all of them or none."""
        calls: list[Call] = [(given, {}) for given in zip(*iterables, strict=False)]
        return self._start(fn, calls, array=True) if calls else []

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **_: Any,
    ) -> Iterator[T]:
        """The values of `map_array` in order. An exception, or TimeoutError after `timeout`
        seconds, leaves the other tasks running.
        """
        started = self.map_array(fn, *iterables)
        clock = self._line.clock
        until_s = None if timeout is None else clock.boottime_s() + timeout

        def values() -> Iterator[T]:
            for each in started:
                left_s = None if until_s is None else max(0.0, until_s - clock.boottime_s())
                yield each.result(left_s)

        return values()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait`: until all have ended. `cancel_futures`: cancel their jobs.
        Ctrl-C ends the wait and leaves the jobs running.
        """
        with self._lock:
            self._closed = True
            left = list(self._pending)
        if cancel_futures:
            lives = [each for each in left if not each.done()]
            for each in lives:
                each._asked = True
            self._line.jobs.cancel_many([each.job.id for each in lives])
        if wait:
            try:
                futures.wait(left)
            except KeyboardInterrupt as error:
                self._note_left(error)
                raise
        self._close_reader()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down, and wait for all calls. After Ctrl-C nothing is waited for."""
        stopped = isinstance(error, KeyboardInterrupt)
        self.shutdown(wait=not stopped)
        if error is not None and stopped:
            self._note_left(error)

    def _note_left(self, error: BaseException) -> None:
        with self._lock:
            left = sum(not each.done() for each in self._pending)
        if left:
            error.add_note("1 job goes on" if left == 1 else f"{left} jobs go on")

    def _start(
        self, fn: Callable[..., T], calls: Sequence[Call], *, array: bool
    ) -> list[FunctionFuture[T]]:
        if self._closed:
            raise RuntimeError("the executor takes no more calls")
        line = self._line
        key = line.jobs.new_request_id()
        files = FunctionFiles(
            self._root.absolute(), key, keep=self._keep, largest_result=self._largest_result
        )
        files.write(fn, calls)
        try:
            jobs = self._submitted(fn, files, key, len(calls) if array else 0)
        except DlqError as error:
            if not isinstance(error, Unavailable):  # a lost answer may have queued it
                files.remove()
            raise
        made: list[FunctionFuture[T]] = []
        for job in jobs:
            future: FunctionFuture[T] = FunctionFuture()
            future.job = job
            made.append(future)
        with self._lock:
            self._pending.update(made)
        ends = line.watch.until([job.id for job in jobs], is_over)
        for number, future in enumerate(made):
            read = partial(self._read_later, future, files, number)
            ends[future.job.id].add_done_callback(read)
        return made

    def _submitted(
        self, fn: Callable[..., Any], files: FunctionFiles, key: str, tasks: int
    ) -> Sequence[Job]:
        command = [self._python, "-m", "dlq_train.function", files.place]
        words = self._words.copy()
        if not {"name", "job_name"} & words.keys():
            words["name"] = job_name_from(getattr(fn, "__name__", "function"))
        if not tasks:
            return [submitted(self._line, command, (), words, key)]
        words["array"] = f"0-{tasks - 1}" + (f"%{self._concurrent}" if self._concurrent else "")
        return submitted_array(self._line, command, (), words, key)

    def _read_later(
        self, future: FunctionFuture[Any], files: FunctionFiles, number: int, end: JobFuture
    ) -> None:
        """In the thread of the watch, which does not wait."""
        try:
            self._reader.submit(self._read, future, files, number, end)
        except RuntimeError as over:  # the program ends; the job goes on
            future.set_exception(over)

    def _read(
        self, future: FunctionFuture[Any], files: FunctionFiles, number: int, end: JobFuture
    ) -> None:
        try:
            job = end.result()
            if future._is_cancelled_by(job):
                files.taken()
                future._end_cancelled()
            else:
                value = self._value(job, files, number)
                files.taken()
                future.set_result(value)
        except BaseException as error:  # noqa: BLE001 - of the function, or of the line
            future.set_exception(error)
        with self._lock:
            self._pending.discard(future)
        self._close_reader()

    def _value(self, job: job_pb2.Job, files: FunctionFiles, number: int) -> Any:
        try:
            return files.value(number, is_well=is_well(job))
        except FunctionLost:
            if is_well(job):
                raise
            try:
                answer = self._line.jobs.get(job.job_id)
            except DlqError as error:
                raise error from None
        raise failure_of(answer)

    def _close_reader(self) -> None:
        with self._lock:
            over = self._closed and not self._pending
        if over:
            self._reader.shutdown(wait=False)
