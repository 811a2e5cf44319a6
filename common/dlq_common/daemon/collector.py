"""When a daemon's Python looks for objects that refer to each other, and that nobody else needs.

Such a look stops the whole process. By itself Python looks at new objects once there are YOUNG more
of them than have gone. Where new objects take the place of old ones, as the beats of jobs do, that
difference stands still. Hundreds of thousands of new objects gather then, and a look at them took
150 ms in a master with 5,000 agents. So the daemon has them looked at by the clock as well, while
they are few.

All that is loaded at the start stays, and is never looked at. All other old objects are looked at
now and then. That takes long with many agents, so it comes the more rarely the longer it took.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

YOUNG, NEVER = (5_000, 10), 1_000_000_000  # when Python looks at new objects, and at all
NEW_EVERY_S = 0.1
OLDER_AFTER_S = 0.003  # of looks at new objects: then the next is also at their survivors
ALL_EVERY_S, DAY_S = 3600.0, 86_400.0
ALL_SHARE = 50_000  # a look at all may take one part in so many of the time


@contextmanager
def collecting_later() -> Iterator[None]:
    """Nothing is looked for until `keep_what_is_loaded`: while values load, none goes."""
    gc.unfreeze()  # of a daemon before this one in the same process
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def keep_what_is_loaded() -> None:
    """Looking through all jobs takes a part of a second, in which no agent is heard."""
    gc.freeze()
    gc.set_threshold(*YOUNG, NEVER)
    gc.enable()


class Collector:
    """Looks at new objects when it is called often, and at all of them in a task of its own."""

    def __init__(self, tell_s: Callable[[], float]) -> None:
        """`tell_s`: seconds on any clock that only rises."""
        self._tell_s = tell_s
        self._next_s = tell_s()
        self._spent_s = 0.0  # on objects that have been looked at once

    def turned(self) -> None:
        """The daemon may pause for a moment: look at new objects, NEW_EVERY_S after the last.

        Objects that survive a second look count as old. By the clock, the calls of each such moment
        would become old. So a second look comes only when there are many objects for it.
        """
        now_s = self._tell_s()
        if now_s < self._next_s:
            return
        twice = self._spent_s >= OLDER_AFTER_S
        gc.collect(1 if twice else 0)
        took_s = self._tell_s() - now_s
        self._spent_s = 0.0 if twice else self._spent_s + took_s
        self._next_s = now_s + took_s + NEW_EVERY_S

    async def look_at_all(
        self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        """Look at everything but what was loaded, for ever."""
        took_s = 0.0
        while True:
            await pause(min(max(ALL_EVERY_S, took_s * ALL_SHARE), DAY_S))
            began_s = self._tell_s()
            gc.collect()
            took_s = self._tell_s() - began_s
