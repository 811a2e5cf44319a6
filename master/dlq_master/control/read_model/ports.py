"""The master's read side and its doors, as the rooms outside of control see them."""

from collections.abc import AsyncIterable, Sequence
from typing import Protocol, Self, TypeVar

from dlq_master.control.forecast.accuracy import Quality
from dlq_master.control.loop.ports import StimulusSink
from dlq_master.control.loop.watch import EVERYTHING, Interest
from dlq_master.control.people.queues import QueueFacts as QueueFacts
from dlq_master.control.read_model.published import Published
from dlq_master.model.event import JournalEvent
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Changes, Compared, Forecast, StartEstimate
from dlq_master.store.batch import PastJobs as PastJobs
from dlq_master.store.tables.accounts import Books as Books

A = TypeVar("A")  # the answer to a stimulus


class Foresight(Protocol):
    """A source of forecasts of job starts. `Unknown` is raised where nobody does, and is no
    fault.
    """

    latest: Forecast | None

    def quality(self) -> Quality: ...
    async def estimate(self, job: Job, patience_s: float) -> StartEstimate: ...
    async def what_if(self, changes: Changes, patience_s: float) -> Compared: ...


class EventStream(AsyncIterable[JournalEvent], Protocol):
    """Events for one reader. `seen`: while it waits, there is nothing more for it up to here."""

    @property
    def seen(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    async def more(self, patience_s: float | None = None) -> Sequence[JournalEvent]: ...


class Control(StimulusSink, Protocol):
    """The loop as the rpc room sees it."""

    @property
    def published(self) -> Published: ...

    def current(self) -> Published:
        """The published state, for an answer. Raises Unavailable when another master may lead,
        which knows more.
        """

    def watch(
        self, after: int, interest: Interest = EVERYTHING, *, gathered: bool = False
    ) -> EventStream:
        """Every committed event with a sequence above `after`, then live ones as they are
        committed. `gathered`: the reader takes several in one message.

        0: from the beginning of what is kept; -1: from now on. Raises CursorExpired when events
        after it may have been cut.
        """
