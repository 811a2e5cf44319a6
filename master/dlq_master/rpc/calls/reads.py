"""Fair reads: few at a time for each caller, and long answers made in slices.

One event loop answers all callers, and takes heartbeats and submissions too. So of one identity
only a few reads are answered at a time. Some more wait in its line, first come, first served.
Further ones are refused, and their client tries again.

A long answer is made in slices. However many answers are being made, the loop does one slice, and
then handles all other events. The next slice is of another identity, if there is one. While calls
arrive, the loop pauses for two milliseconds between two slices. gRPC accepts one call after
another, and each takes several rounds of the loop. With a slice in each round, a call would wait
behind all calls before it.

Nothing is stored: a restarted master has empty lines.
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
LOOKED_AT: Final = 1  # a row that may not be listed
ENCODED: Final = 8  # a row that is listed
PAUSE_S: Final = 0.002  # between slices, while calls come

Breathe = Callable[[int], Awaitable[None]]


@dataclass(slots=True)
class _Line:
    """The line of one identity: how many are being answered, and the waiting ones."""

    served: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Lines:
    """A line for each identity. Used in the event loop's thread only."""

    def __init__(self, what: str, *, at_once: int = AT_ONCE, in_line: int = IN_LINE) -> None:
        """`what`: the limit's name in refusals."""
        self._what = what
        self._at_once = at_once
        self._in_line = in_line
        self._lines: dict[str, _Line] = {}

    async def enter(self, name: str) -> None:
        """Wait for a place and take it. TryAgain: too many wait already."""
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
    """Decides whose slice is next: one per round of the loop, of each identity in turn; fewer while
    calls arrive.
    """

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._granting = False
        self._came = False  # a call, since the last slice

    def came(self) -> None:
        """A call has arrived. It, and others behind it, go before the next slice."""
        self._came = True

    def of(self, name: str) -> Breathe:
        """The `breathe` of one answer. It is told the cost of each step, and waits when a slice is
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
        """Start the next slice: at once, or after a pause if calls have arrived."""
        if self._came:
            self._came = False
            asyncio.get_running_loop().call_later(self._pause_s, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Let one answer go on, and look again in the next round of the loop."""
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
