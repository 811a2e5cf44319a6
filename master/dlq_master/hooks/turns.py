"""Whose call of a hook comes next: one at a time, and users take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """A lock that is passed on from user to user: a crowd of one user delays others by one call
    each.
    """

    def __init__(self) -> None:
        self._taken = False
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """The turn of this user, until the end of the block."""
        await self._take(user)
        try:
            yield
        finally:
            self._pass_on(user)

    # --- helpers, in order of use -----------------------------------------------------------------

    async def _take(self, user: str) -> None:
        if not self._taken:
            self._taken = True
            return
        place = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it had the turn, and does not use it
                self._pass_on(user)
            raise

    def _pass_on(self, user: str) -> None:
        """To the first of the next user. Calls whose callers have left are passed over."""
        if user in self._lines:
            self._lines.move_to_end(user)
        while self._lines:
            following, line = self._lines.popitem(last=False)
            place = line.popleft()
            if line:
                self._lines[following] = line  # behind all other users
            if not place.cancelled():
                place.set_result(None)
                return
        self._taken = False
