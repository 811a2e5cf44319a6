"""An event loop on virtual time that runs several processes, in an order that the tape chooses.

Time passes only when nothing is ready. A process is a set of callbacks with one context variable.
A dead one runs nothing any more, not even a `finally`: that is kill -9. A stopped one runs nothing
until it goes on: that is SIGSTOP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from world.stage.tape import Stream


class Deadlock(Exception):
    """Nothing is ready, and nothing ever will be."""


class Order(IntEnum):
    """How callbacks that are ready take turns."""

    FIFO = 0
    PROCESSES = 1  # any process is next, and within one they stay in order
    ANY = 2


class Process:
    """One program that runs on a host of the world."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.fuse = 0  # it is killed at so many callbacks from now
        self.burnt: Callable[[], object] = self.kill
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process."""
        return self._loop.create_task(work, context=self.context)

    def later(self, delay_s: float, act: Callable[..., object], *given: Any) -> asyncio.TimerHandle:
        """Call it in this process after some time."""
        return self._loop.call_later(delay_s, act, *given, context=self.context)

    def kill(self) -> None:
        """kill -9."""
        self.alive = False
        self._held.clear()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT: all that has waited is ready now."""
        self.stopped = False
        held, self._held = self._held, []
        self._loop.ready(held)

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep it until the process goes on."""
        self._held.append(handle)


class Soon(asyncio.Handle):
    """A handle of a loop that never debugs: made and ended some hundred thousand times a seed."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualLoop,
        context: Context | None,
    ) -> None:  # fmt: skip
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        """It is not called any more."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment] # as asyncio does


class Timer(Soon, asyncio.TimerHandle):
    """Stands beside its instant in the heap, which compares instants alone: those of one instant
    are equal there.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...],
        loop: VirtualLoop, context: Context | None,
    ) -> None:  # fmt: skip
        Soon.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: object) -> bool:
        return False


MOST_TASKS = 500
CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """`order` may be changed at any time."""

    def __init__(self, picks: Stream) -> None:
        super().__init__()
        self._now_s = 0.0
        self._picks = picks
        self.order = Order.FIFO
        self.steps = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._scheduled: list[tuple[float, Timer]]
        self._tasks: list[asyncio.Task[Any]] = []  # those of dead processes stay as they are

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **named)
        self._tasks.append(task)
        if len(self._tasks) > MOST_TASKS:
            self._tasks = [it for it in self._tasks if not it.done()]
        return task

    def time(self) -> float:
        return self._now_s

    def call_later(  # type: ignore[override] # as it is called here
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Timer:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override] # likewise
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Timer:
        timer = Timer(when, callback, args, self, context)
        heappush(self._scheduled, (when, timer))
        return timer

    def call_soon(  # type: ignore[override] # likewise
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Soon:
        handle = Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def ready(self, handles: list[asyncio.Handle]) -> None:
        """They are ready again."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        """Run until somebody stops the loop. asyncio calls it once for each round."""
        ready, scheduled = self._ready, self._scheduled
        while not self._stopping:  # type: ignore[attr-defined] # of BaseEventLoop
            now_s = self._now_s
            while scheduled and scheduled[0][0] <= now_s:
                timer = heappop(scheduled)[1]
                if not timer._cancelled:
                    ready.append(timer)
            if not ready:
                self._wait()
                continue
            handle = ready.popleft() if len(ready) == 1 else self._next()
            if handle._cancelled:
                continue
            context: Context = handle._context  # type: ignore[attr-defined]
            process = context.get(CURRENT)
            if process is not None and (process.stopped or not process.alive):
                if process.alive:
                    process.hold(handle)
                continue
            self.steps += 1
            if process is not None and process.fuse:
                process.fuse -= 1
                if not process.fuse:
                    process.burnt()
                    continue
            try:
                context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio does
                told = {"message": f"Exception in callback {handle}", "exception": error}
                self.call_exception_handler(told)

    def _wait(self) -> None:
        """Time passes until the next timer."""
        scheduled = self._scheduled
        while scheduled and scheduled[0][1]._cancelled:
            heappop(scheduled)
        if not scheduled:
            raise Deadlock
        self._now_s = max(self._now_s, scheduled[0][0])

    def _next(self) -> asyncio.Handle:
        """One of several."""
        ready = self._ready
        if self.order is Order.FIFO:
            return ready.popleft()
        at = self._picks.below(len(ready))
        if at and self.order is Order.PROCESSES:
            process = ready[at]._context.get(CURRENT)  # type: ignore[attr-defined]
            at = next(
                place
                for place, one in enumerate(ready)
                if one._context.get(CURRENT) is process  # type: ignore[attr-defined]
            )
        handle = ready[at]
        del ready[at]
        return handle

    def _process_events(self, event_list: Any) -> None:
        """There are no files."""

    def _check_closed(self) -> None:
        """What ends after the end of the loop may say so; nobody hears it."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator of a dead process ends without a word."""

    def end(self) -> None:
        """Close what was left in the middle, and the loop. Nothing of it has an effect."""
        self._ready.clear()
        for task in [it for it in self._tasks if not it.done()]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with suppress(BaseException):
                assert coroutine is not None
                coroutine.close()
        self._ready.clear()
        self._scheduled.clear()
        self.close()
