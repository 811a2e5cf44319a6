"""Event fan-out: any number of readers follow the journal, and none of them costs a query."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from dlq_common.errors import CursorExpired
from dlq_master.control.loop.ports import HistoryRecords
from dlq_master.model.event import JournalEvent

PAGE: Final = 500
BACKLOG: Final = 10_000


class Subscription:
    """One reader: the past from disk, then the present from memory; nothing missed, none twice.

    A reader slower than the cluster is not buffered without end: it goes back to the disk. One so
    slow that retention has overtaken it is told (CursorExpired).
    """

    def __init__(self, watchers: "Watchers", after: int) -> None:
        self._watchers = watchers
        self._after = after
        # A reader that asks for the beginning accepts the kept part.
        self._floor = watchers.horizon if after == 0 else 0
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
            # Set first: events committed during the read are pushed, and filtered by sequence.
            page = self._watchers.history.events(self._after, PAGE)
            horizon, last = self._watchers.horizon, self._watchers.last
            if horizon > max(self._after, self._floor):
                raise cursor_expired(self._after, horizon)
            events = [event for event in page if event.seq <= last]
            self._behind = len(events) == PAGE
            return events
        live, self._live = self._live, []
        return [event for event in live if event.seq > self._after]


class Watchers:
    """All readers of the journal."""

    def __init__(self, history: HistoryRecords) -> None:
        self.history = history
        self.horizon = 0  # of the journal; moved before anything behind it is cut
        # An event behind this one is on disk already, but its effect on the job is not visible yet.
        self.last = 0
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
        """These are on disk now, and what they made of their jobs can be read."""
        if events:
            self.last = events[-1].seq
            for subscription in self._all:
                subscription.push(events)


def cursor_expired(cursor: int, horizon: int) -> CursorExpired:
    """The word for a reader who would miss events without knowing it, and what to do."""
    return CursorExpired(
        f"the journal is kept from event {horizon + 1} on; {cursor} is too far back to go on from",
        hint="read the state anew (dlq status), then watch from now on",
        oldest=horizon,
    )
