"""Event fan-out: any number of readers follow the journal, and none of them costs a query."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from dlq_master.control.published import History
from dlq_master.model.event import JournalEvent

PAGE: Final = 500
BACKLOG: Final = 10_000


class Subscription:
    """One reader: the past from disk, then the present from memory; nothing missed, none twice.

    A reader slower than the cluster is not buffered without end: it goes back to the disk.
    """

    def __init__(self, watchers: "Watchers", after: int) -> None:
        self._watchers = watchers
        self._after = after
        self._live: list[JournalEvent] = []
        self._behind = True  # read from disk before believing the live list
        self._arrived = asyncio.Event()

    def push(self, events: Sequence[JournalEvent]) -> None:
        """New committed events."""
        if len(self._live) + len(events) > BACKLOG:
            self._live.clear()
            self._behind = True
        elif not self._behind:
            self._live.extend(events)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[JournalEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[JournalEvent]:
        self._watchers.add(self)
        try:
            while True:
                for event in self._next():
                    self._after = event.seq
                    yield event
                if not self._behind and not self._live:
                    await self._arrived.wait()
                self._arrived.clear()
        finally:
            self._watchers.remove(self)

    def _next(self) -> Sequence[JournalEvent]:
        if self._behind:
            # Set first: what is committed during the read is pushed, and filtered by sequence.
            page = self._watchers.history.events(self._after, PAGE)
            self._behind = len(page) == PAGE
            return page
        live, self._live = self._live, []
        return [event for event in live if event.seq > self._after]


class Watchers:
    """All readers of the journal."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._all: set[Subscription] = set()

    def subscribe(self, after: int, last: int) -> Subscription:
        """A reader of what follows `after`; -1 means from now on."""
        return Subscription(self, last if after < 0 else after)

    def add(self, subscription: Subscription) -> None:
        """It has begun to read."""
        self._all.add(subscription)

    def remove(self, subscription: Subscription) -> None:
        """It has gone."""
        self._all.discard(subscription)

    def publish(self, events: Sequence[JournalEvent]) -> None:
        """These are on disk now."""
        if events:
            for subscription in self._all:
                subscription.push(events)
