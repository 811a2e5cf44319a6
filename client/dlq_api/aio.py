"""Coroutines with the names of `dlq`: `async with dlq.aio.connect() as cluster`.

Each is the call of `dlq` in another thread, so the rules and the errors are the same. Waits hold no
thread: all of them share the one stream of the connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from dlq_api import cluster as cluster_module
from dlq_api.cluster import Cluster
from dlq_api.ends import WaitTimeout
from dlq_api.job import Job, JobArray, JobGroup, Until
from dlq_api.values import Eta, JobPromise, Why
from dlq_api.words import Source, SubmitWords, Text

T = TypeVar("T")
_END = object()
_AHEAD = 1_000  # lines that a follower reads before its consumer takes them


class AsyncJob:
    """A `dlq.Job` whose calls and properties are awaited: `await job.promise`."""

    def __init__(self, job: Job) -> None:
        self.sync = job
        """The same job for calls that block."""
        self.id, self.user, self.name, self.array_id = job.id, job.user, job.name, job.array_id

    @property
    def state(self) -> Coroutine[Any, Any, str]:
        """See `dlq.Job.state`."""
        return asyncio.to_thread(lambda: self.sync.state)

    @property
    def facts(self) -> Coroutine[Any, Any, dict[str, object]]:
        """See `dlq.Job.facts`."""
        return asyncio.to_thread(lambda: self.sync.facts)

    @property
    def promise(self) -> Coroutine[Any, Any, JobPromise | None]:
        """See `dlq.Job.promise`."""
        return asyncio.to_thread(lambda: self.sync.promise)

    @property
    def eta(self) -> Coroutine[Any, Any, Eta]:
        """See `dlq.Job.eta`."""
        return asyncio.to_thread(lambda: self.sync.eta)

    async def why(self) -> Why:
        """See `dlq.Job.why`."""
        return await asyncio.to_thread(self.sync.why)

    async def logs(
        self, *, follow: bool = False, rank: int | str = 0, attempt: int = 0
    ) -> AsyncIterator[str]:
        """See `dlq.Job.logs`. The reader stops soon after its consumer."""
        lines = _LineReader(lambda: self.sync.logs(follow=follow, rank=rank, attempt=attempt))
        try:
            async for line in lines:
                yield line
        finally:
            lines.stop()

    async def wait(  # with the words of dlq.Job
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        until: Until = "end",
    ) -> Self:
        """See `dlq.Job.wait`. Cancelling the task ends the wait, and not the job."""
        future = asyncio.wrap_future(await asyncio.to_thread(self.sync.future, until=until))
        try:
            self.sync.took(await asyncio.wait_for(future, timeout))
        except TimeoutError:
            raise WaitTimeout(f"waited {timeout} s; job {self.id} goes on") from None
        return self

    async def result(self, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """See `dlq.Job.result`."""
        await self.wait(timeout)
        return await asyncio.to_thread(self.sync.ended)

    async def cancel(self, *, kill: bool = False) -> Self:
        """See `dlq.Job.cancel`."""
        return await self._after(lambda: self.sync.cancel(kill=kill))

    async def pause(self, *, accept_loss: bool = False) -> Self:
        """See `dlq.Job.pause`."""
        return await self._after(lambda: self.sync.pause(accept_loss=accept_loss))

    async def resume(self) -> Self:
        """See `dlq.Job.resume`."""
        return await self._after(self.sync.resume)

    async def hold(self) -> Self:
        """See `dlq.Job.hold`."""
        return await self._after(self.sync.hold)

    async def release(self) -> Self:
        """See `dlq.Job.release`."""
        return await self._after(self.sync.release)

    async def _after(self, call: Callable[[], Job]) -> Self:
        await asyncio.to_thread(call)
        return self

    def __repr__(self) -> str:
        return repr(self.sync).replace("dlq.Job", "dlq.aio.AsyncJob")

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()


class AsyncArray(Sequence[AsyncJob]):
    """A `dlq.JobArray` whose calls are awaited."""

    def __init__(self, array: JobArray) -> None:
        self.sync = array
        """The same array for calls that block."""
        self.id = array.id
        self._tasks = [AsyncJob(job) for job in array]

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> AsyncJob: ...
    @overload
    def __getitem__(self, index: slice) -> list[AsyncJob]: ...
    def __getitem__(self, index: int | slice) -> AsyncJob | list[AsyncJob]:
        return self._tasks[index]

    async def wait(self, timeout: float | None = None) -> Self:  # noqa: ASYNC109
        """See `dlq.JobArray.wait`. Cancelling the task ends the wait, and no job."""
        found = await asyncio.to_thread(self.sync.futures)
        ends = [asyncio.wrap_future(each) for each in found]
        try:
            async with asyncio.timeout(timeout):
                for job, end in zip(self.sync, ends, strict=True):
                    job.took(await end)
        except TimeoutError:
            raise WaitTimeout(f"waited {timeout} s; {self.id} goes on") from None
        finally:
            for end in ends:
                end.cancel()
        return self

    async def result(self, timeout: float | None = None) -> list[int]:  # noqa: ASYNC109
        """See `dlq.JobArray.result`, and that of `dlq.JobGroup`."""
        await self.wait(timeout)
        return await asyncio.to_thread(self.sync.ended)

    async def cancel(self, *, kill: bool = False) -> Self:
        """See `dlq.JobArray.cancel`."""
        await asyncio.to_thread(lambda: self.sync.cancel(kill=kill))
        return self

    def __repr__(self) -> str:
        return repr(self.sync).replace("dlq.Job", "dlq.aio.Async")

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()


class AsyncGroup(AsyncArray):
    """A `dlq.JobGroup` whose calls are awaited."""

    def __init__(self, group: JobGroup) -> None:
        super().__init__(group)
        self.sync: JobGroup = group

    def member(self, name: str) -> list[AsyncJob]:
        """See `dlq.JobGroup.member`."""
        return [AsyncJob(job) for job in self.sync.member(name)]


class AsyncCluster:
    """A `dlq.Cluster` whose calls are awaited."""

    def __init__(self, opened: Callable[[], Cluster]) -> None:
        self._opened = opened
        self._sync: Cluster | None = None

    @property
    def sync(self) -> Cluster:
        """The same connection for calls that block."""
        if self._sync is None:
            raise RuntimeError("not connected: use `async with`, or await it")
        return self._sync

    @property
    def user(self) -> str:
        """See `dlq.Cluster.user`."""
        return self.sync.user

    @property
    def name(self) -> str:
        """See `dlq.Cluster.name`."""
        return self.sync.name

    async def submit(
        self, source: Source, *arguments: Text, request_id: str = "", **words: Unpack[SubmitWords]
    ) -> AsyncJob:
        """See `dlq.Cluster.submit`. A cancelled task may have queued the job."""
        call = lambda: self.sync.submit(source, *arguments, request_id=request_id, **words)  # noqa: E731
        return AsyncJob(await asyncio.to_thread(call))

    async def submit_array(
        self, source: Source, *arguments: Text, request_id: str = "", **words: Unpack[SubmitWords]
    ) -> AsyncArray:
        """See `dlq.Cluster.submit_array`."""
        call = lambda: self.sync.submit_array(source, *arguments, request_id=request_id, **words)  # noqa: E731
        return AsyncArray(await asyncio.to_thread(call))

    async def submit_group(
        self,
        source: Text | Mapping[str, object],
        *,
        request_id: str = "",
        **words: Unpack[SubmitWords],
    ) -> AsyncGroup:
        """See `dlq.Cluster.submit_group`."""
        call = lambda: self.sync.submit_group(source, request_id=request_id, **words)  # noqa: E731
        return AsyncGroup(await asyncio.to_thread(call))

    async def job(self, job_id: int | str) -> AsyncJob:
        """See `dlq.Cluster.job`."""
        return AsyncJob(await asyncio.to_thread(self.sync.job, job_id))

    async def array(self, array_id: int | str) -> AsyncArray:
        """See `dlq.Cluster.array`."""
        return AsyncArray(await asyncio.to_thread(self.sync.array, array_id))

    async def jobs(self, **chosen: Any) -> list[AsyncJob]:
        """See `dlq.Cluster.jobs`."""
        found = await asyncio.to_thread(lambda: self.sync.jobs(**chosen))
        return [AsyncJob(job) for job in found]

    async def close(self) -> None:
        """See `dlq.Cluster.close`."""
        if self._sync is not None:
            await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> Self:
        self._sync = await asyncio.to_thread(self._opened)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()


def connect(home: Text | None = None, *, patience: float | None = None) -> AsyncCluster:
    """See `dlq.connect`; `async with` opens the connection, and so does `await`."""
    return AsyncCluster(lambda: cluster_module.connect(home, patience=patience))


class _LineReader:
    """Lines of a blocking iterator, read by a thread that no end of the program waits for."""

    def __init__(self, lines: Callable[[], Any]) -> None:
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[object] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._stopped = False
        threading.Thread(target=self._read, name="dlq-lines", daemon=True).start()

    def stop(self) -> None:
        """Read no further line."""
        self._stopped = True
        self._room.release()

    def _read(self) -> None:
        end: object = _END
        try:
            for line in self._lines():
                self._room.acquire()
                if self._stopped:
                    return
                self._put(line)
        except BaseException as error:  # noqa: BLE001 - raised where the lines are awaited
            end = error
        self._put(end)

    def _put(self, item: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody awaits it
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (item := await self._queue.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            self._room.release()
            yield str(item)
