"""The reads of one caller at a time, and the time for which answers are made in fair slices.

Everybody is answered by one loop, which also takes heartbeats and submits. So of one identity only
a few reads are answered at a time. Some more wait in its line, first come, first served. Further
ones are refused, and their client comes again. A long answer is made in slices. However many are
being made, the loop does one slice, and then looks at all other events. Then it does the next
slice, of another identity if there is one. While calls come, they have the loop for two
milliseconds between two slices. gRPC takes in one call after another, each in some rounds of the
loop. With a slice in each round, a call would wait behind all that came before it.

Nothing of it is kept: a master that starts again has empty lines.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dlq_common.errors import TryAgain

AT_ONCE: Final = 4  # answers to one identity that are being made
IN_LINE: Final = 64  # more of them that wait
RETRY_AFTER_S: Final = 1

# The limit of a slice, and its content so far: about a millisecond.
SLICE: Final = 256
LOOKED_AT: Final = 1  # a row that is perhaps not wanted
ENCODED: Final = 8  # a row that is told
PAUSE_S: Final = 0.002  # between slices, while calls come

Breathe = Callable[[int], Awaitable[None]]


@dataclass(slots=True)
class _Line:
    """For one identity: how many are served, and which ones wait for that."""

    served: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Lines:
    """A line for each identity. Lives in the event loop's thread."""

    def __init__(self, what: str, *, at_once: int = AT_ONCE, in_line: int = IN_LINE) -> None:
        """`what`: the limit's name, as refusals tell it."""
        self._what = what
        self._at_once = at_once
        self._in_line = in_line
        self._lines: dict[str, _Line] = {}

    async def enter(self, name: str) -> None:
        """Wait for a place and take it. TryAgain when too many wait already."""
        line = self._lines.setdefault(name, _Line())
        if line.served < self._at_once:
            line.served += 1
            return
        if len(line.waiting) >= self._in_line:
            used = line.served + len(line.waiting)
            raise TryAgain(
                f"{name} has {used} {self._what} on their way already",
                hint=f"{self._at_once} are answered at a time; ask again in {RETRY_AFTER_S} s",
                retry_after_s=RETRY_AFTER_S,
                limit=self._what,
                used=used,
            )
        coming = asyncio.get_running_loop().create_future()
        line.waiting.append(coming)
        try:
            await coming
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled():
                self.leave(name)  # its place had just come
            else:
                with suppress(ValueError):
                    line.waiting.remove(coming)
            raise

    def leave(self, name: str) -> None:
        """Give the place to the next in line."""
        line = self._lines[name]
        while line.waiting:
            coming = line.waiting.popleft()
            if not coming.done():
                coming.set_result(None)
                return
        line.served -= 1
        if not line.served:
            self._lines.pop(name, None)


class Slices:
    """Whose slice is next: one in every round of the loop, of each identity in turn; fewer while
    calls come.
    """

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._granting = False
        self._came = False  # a call, since the last slice

    def came(self) -> None:
        """A call has come. Others may be behind it, and they go before the next slice."""
        self._came = True

    def of(self, name: str) -> Breathe:
        """For one answer to that identity: told what a step costs, it waits when a slice is
        full.
        """
        spent = 0

        async def breathe(cost: int) -> None:
            nonlocal spent
            spent += cost
            if spent >= SLICE:
                spent = 0
                await self._next(name)

        return breathe

    async def _next(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        coming = loop.create_future()
        self._waiting.setdefault(name, deque()).append(coming)
        if not self._granting:
            self._granting = True
            loop.call_soon(self._grant)
        await coming

    def _grant(self) -> None:
        """The next one goes on: at once, or after a pause if calls came since the last."""
        if self._came:
            self._came = False
            asyncio.get_running_loop().call_later(self._pause_s, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Let one go on; look again in the next round of the loop."""
        while self._waiting:
            name, own = self._waiting.popitem(last=False)
            coming = own.popleft()
            if own:
                self._waiting[name] = own  # behind the others
            if not coming.done():
                coming.set_result(None)
                break
        self._granting = bool(self._waiting)
        if self._granting:
            asyncio.get_running_loop().call_soon(self._grant)
