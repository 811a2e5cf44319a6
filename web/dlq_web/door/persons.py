"""Lets a user in whom a way of signing in has proven: the master says whether and as what.

Each session has a line of its own to the master, on which every call names its user. When the
master knows that user no more, the session ends, with all that it has open. Persons who are told of
all events in full share one watch of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from dlq.v1 import queue_service_pb2
from dlq_client.line.identity import Identity
from dlq_common.clock import Clock
from dlq_common.identity.acting import ActsFor
from dlq_common.text.wire import from_timestamp
from dlq_web.door.sessions import Person
from dlq_web.line import feed as feeds
from dlq_web.line.calls import MasterLine
from dlq_web.line.common_feed import CommonFeed, MemberFeed
from dlq_web.line.feed import EventFeed
from dlq_web.line.methods import named

_GET_CLUSTER = named("QueueService", "GetCluster")


class Persons:
    """Makes the persons of sessions, and tidies up behind them."""

    def __init__(
        self, identity: Callable[[], Identity], clock: Clock, dismiss: Callable[[Person], None]
    ) -> None:
        """`identity`: the service's present one, which open sessions follow. `dismiss`: ends the
        session of this person.
        """
        self._identity = identity
        self._clock = clock
        self._dismiss = dismiss
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._leaving: set[asyncio.Task[None]] = set()
        self._common = CommonFeed()

    async def admit(self, user: ActsFor, groups: tuple[str, ...] = ()) -> Person:
        """The person for a session of this user. Raises a DlqError when the master knows no such
        user, or grants the service nothing for their role. `groups`: of the issuer. The user must
        have rights without them, and the master says which role they give.
        """
        own = user
        line = MasterLine(self._identity(), self._clock, own, self._identity)
        try:
            told = await line.call(_GET_CLUSTER, queue_service_pb2.GetClusterRequest())
            if own.since_s is None:
                own = own._replace(since_s=from_timestamp(told.master_time))
            user = own = own._replace(role=told.role)
            if groups:
                line.speak_for(own._replace(role="", groups=groups))
                told = await line.call(_GET_CLUSTER, queue_service_pb2.GetClusterRequest())
                user = own._replace(role=told.role, groups=groups)
        except BaseException:
            await line.close()
            raise
        line.speak_for(user)
        feed: EventFeed | MemberFeed
        if told.people_version:
            feed = self._common.of(line, told.people_version)
        else:
            feed = EventFeed(line, kept=feeds.KEPT_OF_MANY, idle_s=feeds.IDLE_S)
        person = Person(told.caller, told.role, told.cluster_name, line, feed, user, own)
        line.places = self._places.setdefault(person.name, line.places)
        line.gone = lambda: self._dismiss(person)
        return person

    def left(self, person: Person) -> None:
        """The session of this person is over."""
        task = asyncio.get_running_loop().create_task(_close(person))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Wait for those who are leaving, and end what all had in common."""
        await self._common.close()
        await asyncio.gather(*self._leaving, return_exceptions=True)


async def _close(person: Person) -> None:
    await person.feed.close()
    assert isinstance(person.line, MasterLine)
    await person.line.close()
