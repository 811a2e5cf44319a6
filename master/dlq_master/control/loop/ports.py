"""The ports of the loop: calls that it makes, and calls that other packages make to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from dlq_master.control.stimuli import Answered, Command, Stimulus
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import Owner
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.usage.cost import Costs
from dlq_master.planner.forecasts import Range
from dlq_master.store.batch import Batch, PastJobs, StoredRequest
from dlq_master.store.list_order import ListOrder, Rank
from dlq_master.store.tables.accounts import Books
from dlq_master.store.tables.tenants import Waited

if TYPE_CHECKING:
    from dlq_common.fence import LeaderFence

A = TypeVar("A")


class Leads(Protocol):
    """The lease of a master that has a standby."""

    @property
    def fence(self) -> "LeaderFence":
        """The fence of this leadership."""

    def may_speak(self) -> bool:
        """Whether no other master can lead now."""

    async def until_it_may_speak(self) -> None:
        """Wait until `may_speak`, perhaps for ever: the process ends with the lease."""


class StimulusSink(Protocol):
    """The way of stimuli to the loop."""

    async def ask(self, stimulus: Answered[A]) -> A:
        """Put a stimulus in, wait until its turn is on disk, return its answer or raise a
        DlqError.
        """

    def tell(self, stimulus: Stimulus) -> None:
        """Put a stimulus in and do not wait (heartbeats, closed sessions, ticks)."""


class Archive(Protocol):
    """The reads of a turn beyond memory: committed rows only."""

    def job(self, job_id: JobId) -> Job | None: ...
    def attempts(self, job_id: JobId) -> tuple[Attempt, ...]: ...
    def request(self, user: str, request_id: str) -> StoredRequest | None: ...
    def requests(self, user: str, request_ids: Sequence[str]) -> Sequence[StoredRequest]: ...
    def spec(self, job_id: JobId) -> bytes | None: ...
    def recordings(self, job_id: JobId) -> tuple[Recording, ...]: ...
    def evidence(self, key: AttemptKey) -> tuple[Evidence, ...]: ...
    def waited(self, job_id: JobId) -> Waited | None: ...


class HistoryRecords(Archive, Protocol):
    """Committed rows that are not in memory."""

    def owner(self, job_id: JobId) -> Owner | None: ...
    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]: ...
    async def past_in_order(
        self, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
    ) -> Sequence[Job]: ...
    async def past_count(self, wanted: PastJobs) -> int: ...
    async def books(self, first_day: int, last_day: int, now_s: float) -> Books: ...
    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs: ...
    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> tuple[JournalEvent, ...]: ...


class ForeseenStarts(Protocol):
    """A source of start forecasts, as far as there is one."""

    def committed(self, batch: Batch) -> None: ...
    def start(self, job: Job) -> Range | None: ...
    def source(self, now_s: float) -> object: ...


class _Nobody:
    """There is no twin."""

    def committed(self, batch: Batch) -> None:
        """A turn is on disk."""

    def start(self, job: Job) -> Range | None:
        """Nobody knows."""
        return None

    def source(self, now_s: float) -> object:
        """It stays the same."""
        return None


NOBODY_FORESEES = _Nobody()


class Transport(Protocol):
    """How commands reach nodes. Never blocks; a node without a session is simply not reached."""

    def send(self, node_id: NodeId, session_id: int, commands: Sequence[Command]) -> None: ...
    def close(self, node_id: NodeId, session_id: int) -> None: ...
