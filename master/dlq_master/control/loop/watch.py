"""Event fan-out: any number of readers follow the journal, and none of them costs a query.

A reader says what it wants. It is woken for such events alone, so those who wait for other jobs
cost a turn nothing. Of readers that name the same job only a few are woken in a round of the loop.
All other readers together get a bounded number of messages a second, one reader after another. A
reader's next message tells all events since its last one. So their cost has a bound, however many
they are and however much happens.

The newest events are in memory, once for all readers of everything or of the same user. Nothing of
it is kept: after a start of the master its readers come again with their cursors.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Self

from dlq_common.errors import CursorExpired
from dlq_master.control.loop.ports import HistoryRecords
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId

PAGE: Final = 500
BACKLOG: Final = 10_000
WOKEN_AT_ONCE: Final = 16  # readers of a job: each writes to its line, about 100 us
BROAD_AT_ONCE: Final = 4  # messages to readers of a user's events, or of all
BROAD_PER_S: Final = 800  # of them to all of these together
PAGE_MESSAGES: Final = 16  # a page of the disk counts as so many
GATHERED: Final = 128  # events of a message, for a reader that takes several
_SEQUENCE: Final = attrgetter("seq")


class Interest(NamedTuple):
    """The events that a reader wants: of these jobs, or else of this user's; neither: all."""

    jobs: frozenset[JobId] = frozenset()
    user: str = ""

    @property
    def keys(self) -> frozenset[Hashable]:
        """Of the events, as `Watchers` has them."""
        return self.jobs or frozenset((self.user,))


EVERYTHING: Final = Interest()


class Feed:
    """The newest events that its readers want: of one key, or of the jobs that one reader names."""

    def __init__(self, begin: int) -> None:
        self.begin = begin  # all events behind this sequence are here
        self.readers: dict[Subscription, None] = {}
        self._events: list[JournalEvent] = []
        self._dropped = 0

    def add(self, event: JournalEvent) -> None:
        """The next one; the oldest of too many are left to the disk."""
        self._events.append(event)
        if len(self._events) > BACKLOG:
            gone = BACKLOG // 2
            self.begin = self._events[gone - 1].seq
            del self._events[:gone]
            self._dropped += gone

    def some(self, after: int, most: int) -> Sequence[JournalEvent]:
        """Those behind `after`, up to the next multiple of `most`: readers get the same ones."""
        first = bisect_right(self._events, after, key=_SEQUENCE)
        return self._events[first : first + most - (self._dropped + first) % most]

    def has(self, after: int) -> bool:
        """Whether there is an event behind `after`."""
        return bool(self._events) and self._events[-1].seq > after


class Subscription:
    """One reader: the past from disk, then the present from memory; nothing missed, none twice.

    A reader slower than the cluster is not buffered without end: it goes back to the disk. One so
    slow that retention has overtaken it is told (CursorExpired).
    """

    def __init__(
        self, watchers: "Watchers", after: int, interest: Interest, *, gathered: bool
    ) -> None:
        """`gathered`: it takes several events in one message."""
        self._watchers = watchers
        self._after = after
        self.interest = interest
        self._gathered = gathered
        # A reader that asks for the beginning accepts the kept part.
        self._floor = watchers.horizon if after == 0 else 0
        self._feed = Feed(watchers.last)
        self.woken = True  # it looks at once for what there is
        self._waiter: asyncio.Future[None] | None = None

    @property
    def seen(self) -> int:
        """While the reader waits: up to here there is nothing more for it."""
        return self._after if self._due else self._watchers.last

    @property
    def messages(self) -> int:
        """So many tell what it gets when it is woken."""
        if self._after < self._feed.begin:
            return PAGE_MESSAGES
        return 1 if self._gathered else max(1, len(self._feed.some(self._after, GATHERED)))

    def wake(self) -> None:
        """Let it go on, with all that has come for it."""
        self.woken = True
        self._end_wait()

    def __enter__(self) -> Self:
        self._feed = self._watchers.add(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._watchers.remove(self, self._feed)

    async def __aiter__(self) -> AsyncIterator[JournalEvent]:
        with self:
            while True:
                for event in await self.more():
                    yield event

    async def more(self, patience_s: float | None = None) -> Sequence[JournalEvent]:
        """The next events; none when there were none for so long. Within `with` alone."""
        while True:
            if not self.woken:
                await self._wait(patience_s)
                if not self.woken:
                    return ()
            self.woken = False
            events = self._next()
            if self._due:
                self._watchers.queue({self: None})
            if events:
                return events
            await asyncio.sleep(0.0)  # the past may be long, and all of it for others

    @property
    def _due(self) -> bool:
        return self._after < self._feed.begin or self._feed.has(self._after)

    def _next(self) -> Sequence[JournalEvent]:
        if self._after < self._feed.begin:
            return self._past()
        some = self._feed.some(self._after, GATHERED)
        self._after = some[-1].seq if some else self._after
        return some

    def _past(self) -> Sequence[JournalEvent]:
        page = self._watchers.history.events(self._after, PAGE)
        horizon, last = self._watchers.horizon, self._watchers.last
        if horizon > max(self._after, self._floor):
            raise cursor_expired(self._after, horizon)
        # One behind the last is on disk already, but what it made of its job cannot be read yet.
        events = [event for event in page if event.seq <= last]
        self._after = events[-1].seq if len(events) == PAGE else max(self._after, last)
        return [event for event in events if self._wants(event)]

    def _wants(self, event: JournalEvent) -> bool:
        jobs, user = self.interest
        if jobs or event.job_id is None:
            return event.job_id in jobs if jobs else not user
        return not user or self._watchers.owner(event.job_id) == user

    async def _wait(self, patience_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if patience_s is None else loop.call_later(patience_s, self._end_wait)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watchers:
    """All readers of the journal."""

    def __init__(
        self,
        history: HistoryRecords,
        owner: Callable[[JobId], str],
        per_s: float = BROAD_PER_S,
    ) -> None:
        """`owner` tells the user of a job; empty: unknown. `per_s`: messages to readers that name
        no jobs.
        """
        self.history = history
        self.owner = owner
        self._per_s = per_s
        self.horizon = 0  # of the journal; moved before anything behind it is cut
        # An event behind this one is on disk already, but its effect on the job is not visible yet.
        self.last = 0
        self._by_key: dict[Hashable, dict[Feed, None]] = {}
        # Readers with new events, the first to be woken first. `_named` have named jobs.
        self._named: dict[Subscription, None] = {}
        self._broad: dict[Subscription, None] = {}
        self._waking = self._pausing = False

    def subscribe(
        self, after: int, last: int, interest: Interest = EVERYTHING, *, gathered: bool = False
    ) -> Subscription:
        """A reader of what follows `after`; -1 means from now on."""
        return Subscription(self, last if after < 0 else after, interest, gathered=gathered)

    def add(self, subscription: Subscription) -> Feed:
        """It has begun to read: its feed, which readers of the same key share."""
        feed = Feed(self.last)
        if not subscription.interest.jobs:
            feed = next(iter(self._by_key.get(subscription.interest.user, ())), feed)
        for key in subscription.interest.keys:
            self._by_key.setdefault(key, {}).setdefault(feed)
        feed.readers[subscription] = None
        return feed

    def remove(self, subscription: Subscription, feed: Feed) -> None:
        """It has gone."""
        self._named.pop(subscription, None)
        self._broad.pop(subscription, None)
        feed.readers.pop(subscription, None)
        for key in () if feed.readers else subscription.interest.keys:
            feeds = self._by_key.get(key, {})
            feeds.pop(feed, None)
            if not feeds:
                self._by_key.pop(key, None)

    def publish(self, events: Sequence[JournalEvent]) -> None:
        """These are on disk now, and what they made of their jobs can be read."""
        if not events:
            return
        self.last = events[-1].seq
        fed: dict[Feed, None] = {}
        for event in events if self._by_key else ():
            for key in self._keys_of(event):
                for feed in self._by_key.get(key, ()):
                    feed.add(event)
                    fed[feed] = None
        self.queue(*[feed.readers for feed in fed])

    def queue(self, *feeds: Mapping[Subscription, None]) -> None:
        """There is something for these readers, of one feed and another."""
        for readers in feeds:
            named = any(reader.interest.jobs for reader in islice(readers, 1))
            (self._named if named else self._broad).update(readers)
        if not self._waking:
            self._wake_named()
        if not self._pausing:
            self._wake_broad()

    def _wake_named(self) -> None:
        """Some of them now, and some in each of the next rounds of the loop."""
        for subscription in list(islice(self._named, WOKEN_AT_ONCE)):
            del self._named[subscription]
            subscription.wake()
        self._waking = bool(self._named)
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake_named)

    def _wake_broad(self) -> None:
        """Some of them now, and some after a pause that suits the number of their messages."""
        messages = 0
        while self._broad and messages < BROAD_AT_ONCE:
            subscription = next(iter(self._broad))
            del self._broad[subscription]
            if not subscription.woken:  # else it is still busy with its line
                messages += subscription.messages
                subscription.wake()
        self._pausing = messages > 0
        if self._pausing:
            asyncio.get_running_loop().call_later(messages / self._per_s, self._wake_broad)

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
