"""The master's read side and its doors, as the rooms outside of control see them."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from dlq_master.control.deadlines.risk_watch import Risk
from dlq_master.control.forecast.accuracy import Quality
from dlq_master.control.forecast.helper_health import Health
from dlq_master.control.loans.state import Followed, SwitchedOff
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.loop.ports import StimulusSink
from dlq_master.control.people.queues import QueueFacts as QueueFacts
from dlq_master.control.people.team_use import TeamUse
from dlq_master.control.placement.offloaded import Planning
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.control.stimuli import (
    JoinToken,
    Reservation,
    Team,
    User,
)
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import Owner
from dlq_master.model.jobs.recording import Belief, Evidence, Recording
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Node
from dlq_master.model.usage.accounting import Level
from dlq_master.model.usage.cost import Costs
from dlq_master.model.why import ReasonCode
from dlq_master.planner.forecasts import Changes, Compared, Forecast, Range, StartEstimate
from dlq_master.store.batch import PastJobs as PastJobs
from dlq_master.store.tables.accounts import Books as Books
from dlq_master.store.tables.chosen_policy import Chosen

A = TypeVar("A")  # the answer to a stimulus


class ReadModel(Protocol):
    """The published read model: the state of the last commit. Safe to read at any time."""

    epoch: int
    cluster_name: str
    chosen: Chosen

    @property
    def policy(self) -> str: ...  # by name
    @property
    def promises(self) -> bool: ...  # whether that policy promises deadlines
    @property
    def profile_s(self) -> float | None: ...  # T_profile, if that policy measures run times
    @property
    def filed(self) -> Chosen: ...  # what master.toml says
    @property
    def others_shown(self) -> str: ...  # of other people's jobs: "named", "nameless" or "hidden"
    def planning(self) -> Planning: ...
    def loop_lag_s(self) -> float: ...  # how late the last turn came
    def helpers(self) -> tuple[Health, ...]: ...  # planner, twin, policy
    @property
    def incidents(self) -> Callable[[], tuple[Incident, ...]]: ...  # on what the master has failed
    def job(self, job_id: JobId) -> Job | None: ...  # whether it lives or has ended
    def owner(self, job_id: JobId) -> Owner | None: ...  # None for an unknown job
    def jobs(self) -> Iterable[Job]: ...  # living and lately ended ones, in the order of their ids
    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]: ...
    async def books(self, first_day: int, last_day: int, now_s: float) -> Books: ...
    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs: ...
    @property
    def complete_from_s(self) -> float: ...  # all jobs that ended after this are among `jobs`
    def wait_code(self, job: Job, now_s: float) -> ReasonCode | None: ...
    def risk(
        self, job_id: JobId
    ) -> Risk | None: ...  # why its promise may not be kept, if it may not
    def delay(self) -> str: ...  # why nobody is promised anything, if more is needed than time
    def told_s(self, job_id: JobId) -> float | None: ...  # all of its work takes, by its own steps
    def stop_cost_s(self, job: Job) -> float: ...  # of a pause and a resume, as far as measured
    def start_range(self, job: Job) -> Range | None: ...  # when it will probably start, if known
    def spec(self, job_id: JobId) -> bytes: ...
    def attempt(self, key: AttemptKey) -> Attempt | None: ...  # living ones
    def attempts(self, job_id: JobId) -> Sequence[Attempt]: ...  # all, oldest first
    def progress(self, job_id: JobId) -> Beat | None: ...
    def belief(self, job: Job) -> Belief | None: ...  # of how it communicates
    def packing(self) -> Packing | None: ...  # the limits that plans go by
    def recordings(self, job_id: JobId) -> Sequence[Recording]: ...  # oldest first
    def evidence(self, key: AttemptKey) -> Sequence[Evidence]: ...  # in rank order
    def node(self, node_id: NodeId) -> Node | None: ...
    def nodes(self) -> Sequence[Node]: ...  # in the order of their ids
    def contact_s(self, node_id: NodeId) -> float | None: ...  # None: never by this master
    def free_gpu_count(self, node_id: NodeId) -> int: ...
    def holders(self, node_id: NodeId) -> Mapping[int, AttemptKey]: ...  # by GPU
    def figures(self, node_id: NodeId) -> Mapping[int, Figures]: ...  # by GPU, as last told
    def levels(self) -> Mapping[str, Level]: ...  # GPUs of each pool: held, free, neither
    def followed_load(self) -> Followed | None: ...  # by which servers are lent; None: by nobody
    def machines(self) -> Sequence[Machine]: ...  # rented ones, the oldest first
    def pools(self) -> tuple[Sequence[PoolConfig], RentingConfig, Mapping[str, str]]: ...
    def loans_off(self) -> SwitchedOff | None: ...  # who has switched that off; None: nobody
    def server_words(self, node_id: NodeId) -> str: ...  # what a server waits for
    def attempts_on(self, node_id: NodeId) -> Sequence[AttemptKey]: ...
    def user(self, name: str) -> User | None: ...
    def users(self) -> Sequence[User]: ...
    def tokens(self) -> Sequence[JoinToken]: ...
    def reservations(self) -> Sequence[Reservation]: ...  # the first to begin first
    def on_reserved(self, one: Reservation) -> tuple[Sequence[JobId], Sequence[JobId]]: ...
    def teams(self) -> Sequence[Team]: ...  # by name
    def team_uses(self, now_s: float) -> Mapping[str, TeamUse]: ...  # by team, and by account
    def team_notice(self) -> str: ...  # why teams make no difference; empty: they do
    def queues(self) -> Sequence[QueueFacts]: ...
    def freeze_reason(self) -> str: ...
    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> Sequence[JournalEvent]: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def journal_horizon(
        self,
    ) -> int: ...  # up to it only events of living jobs are sure to be there


class Foresight(Protocol):
    """A source of forecasts of job starts. `Unknown` is raised where nobody does, and is no
    fault.
    """

    latest: Forecast | None

    def quality(self) -> Quality: ...
    async def estimate(self, job: Job, patience_s: float) -> StartEstimate: ...
    async def what_if(self, changes: Changes, patience_s: float) -> Compared: ...


class Control(StimulusSink, Protocol):
    """The loop as the rpc room sees it."""

    @property
    def published(self) -> ReadModel: ...

    def watch(self, after: int) -> AsyncIterable[JournalEvent]:
        """Every committed event with a sequence above `after`, then live ones as they are
        committed.

        0: from the beginning of what is kept; -1: from now on. Raises CursorExpired when events
        after it may have been cut.
        """
