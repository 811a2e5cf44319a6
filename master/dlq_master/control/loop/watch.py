"""Event fan-out: any number of readers follow the journal, and none of them costs a query.

A reader says what it wants. It is woken for such events alone, so those who wait for other jobs
cost a turn nothing. Of readers of the same events only a few are woken in a round of the loop.
Between rounds the loop hears heartbeats and submits, however many readers there are.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dlq_common.errors import CursorExpired
from dlq_master.control.loop.ports import HistoryRecords
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId

PAGE: Final = 500
BACKLOG: Final = 10_000
WOKEN_AT_ONCE: Final = 16  # readers: each writes to its line, about 100 us


class Interest(NamedTuple):
    """The events that a reader wants: of these jobs, or else of this user's; neither: all."""

    jobs: frozenset[JobId] = frozenset()
    user: str = ""

    @property
    def keys(self) -> frozenset[Hashable]:
        """Of the events, as `Watchers` has them."""
        return self.jobs or frozenset((self.user,))


EVERYTHING: Final = Interest()


class Subscription:
    """One reader: the past from disk, then the present from memory; nothing missed, none twice.

    A reader slower than the cluster is not buffered without end: it goes back to the disk. One so
    slow that retention has overtaken it is told (CursorExpired).
    """

    def __init__(self, watchers: "Watchers", after: int, interest: Interest = EVERYTHING) -> None:
        self._watchers = watchers
        self._after = after
        self.interest = interest
        # A reader that asks for the beginning accepts the kept part.
        self._floor = watchers.horizon if after == 0 else 0
        self._live: list[JournalEvent] = []
        self._behind = True  # read from disk before believing the live list
        self._arrived = asyncio.Event()

    @property
    def seen(self) -> int:
        """While the reader waits: up to here there is nothing more for it."""
        return self._after if self._behind or self._live else self._watchers.last

    def push(self, events: Sequence[JournalEvent]) -> None:
        """New committed events that it wants; it reads them once it is woken."""
        if len(self._live) + len(events) > BACKLOG:
            self._live.clear()
            self._behind = True
        elif not self._behind:
            self._live.extend(events)

    def wake(self) -> None:
        """Let it go on, with all that was pushed."""
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[JournalEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[JournalEvent]:
        self._watchers.add(self)
        try:
            while True:
                for event in self._next():
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
            self._after = events[-1].seq if events else self._after
            return [event for event in events if self._wants(event)]
        live, self._live = self._live, []
        after, self._after = self._after, max(self._after, live[-1].seq if live else 0)
        return [event for event in live if event.seq > after]

    def _wants(self, event: JournalEvent) -> bool:
        jobs, user = self.interest
        if jobs or event.job_id is None:
            return event.job_id in jobs if jobs else not user
        return not user or self._watchers.owner(event.job_id) == user


class Watchers:
    """All readers of the journal."""

    def __init__(self, history: HistoryRecords, owner: Callable[[JobId], str]) -> None:
        """`owner` tells the user of a job; empty: unknown."""
        self.history = history
        self.owner = owner
        self.horizon = 0  # of the journal; moved before anything behind it is cut
        # An event behind this one is on disk already, but its effect on the job is not visible yet.
        self.last = 0
        self._by_key: dict[Hashable, set[Subscription]] = {}
        self._sleeping: dict[
            Subscription, None
        ] = {}  # with new events, the first to be woken first
        self._waking = False

    def subscribe(self, after: int, last: int, interest: Interest = EVERYTHING) -> Subscription:
        """A reader of what follows `after`; -1 means from now on."""
        return Subscription(self, last if after < 0 else after, interest)

    def add(self, subscription: Subscription) -> None:
        """It has begun to read."""
        for key in subscription.interest.keys:
            self._by_key.setdefault(key, set()).add(subscription)

    def remove(self, subscription: Subscription) -> None:
        """It has gone."""
        self._sleeping.pop(subscription, None)
        for key in subscription.interest.keys:
            readers = self._by_key.get(key, set())
            readers.discard(subscription)
            if not readers:
                self._by_key.pop(key, None)

    def publish(self, events: Sequence[JournalEvent]) -> None:
        """These are on disk now, and what they made of their jobs can be read."""
        if not events:
            return
        self.last = events[-1].seq
        wanted: dict[Subscription, list[JournalEvent]] = {}
        for event in events if self._by_key else ():
            for key in self._keys_of(event):
                for subscription in self._by_key.get(key, ()):
                    wanted.setdefault(subscription, []).append(event)
        for subscription, some in wanted.items():
            subscription.push(some)
            self._sleeping.setdefault(subscription)
        if not self._waking:
            self._wake()

    def _wake(self) -> None:
        """Some of them now, and some in each of the next rounds of the loop."""
        for subscription in list(islice(self._sleeping, WOKEN_AT_ONCE)):
            del self._sleeping[subscription]
            subscription.wake()
        self._waking = bool(self._sleeping)
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake)

    def _keys_of(self, event: JournalEvent) -> Iterator[Hashable]:
        """Readers of any of these keys want the event; no reader has two of them."""
        yield EVERYTHING.user
        if event.job_id is not None:
            yield event.job_id
            if owner := self.owner(event.job_id):
                yield owner


def cursor_expired(cursor: int, horizon: int) -> CursorExpired:
    """The word for a reader who would miss events without knowing it, and what to do."""
    return CursorExpired(
        f"the journal is kept from event {horizon + 1} on; {cursor} is too far back to go on from",
        hint="read the state anew (dlq status), then watch from now on",
        oldest=horizon,
    )
