"""Everything the loop owns between turns. Only the loop's thread touches it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.control.attempts.bookkeeping import Bookkeeping
from dlq_master.control.attempts.outbox import Outbox
from dlq_master.control.config import MasterConfig
from dlq_master.control.deadlines.risk_watch import Risks
from dlq_master.control.forecast.accuracy import Starts
from dlq_master.control.forecast.helper_health import HelperHealth
from dlq_master.control.jobs.counts import JobCounts
from dlq_master.control.jobs.gates import Gates, build
from dlq_master.control.jobs.retries import Retries
from dlq_master.control.jobs.retries import build as retries_of
from dlq_master.control.jobs.submit_rates import SubmitRates
from dlq_master.control.loans.loan_state import SWITCH, LoanState, read_switch
from dlq_master.control.machines.occupancy import Occupancy
from dlq_master.control.machines.pool_state import PoolState
from dlq_master.control.nodes.failures import Suspicion
from dlq_master.control.nodes.gpu_figures import Figures
from dlq_master.control.nodes.instance_state import Instances
from dlq_master.control.nodes.instance_state import restore as restore_instances
from dlq_master.control.people.queues import in_order, rank_base
from dlq_master.control.placement import usage
from dlq_master.control.placement.chosen_policy import Chosen
from dlq_master.control.placement.offloaded import Offloaded
from dlq_master.control.read_model.recent import Recent
from dlq_master.control.read_model.waits import Waits
from dlq_master.control.reservations.conflict_watch import Bookings
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.nodes.gpu_health import Action, actions_of
from dlq_master.model.usage.shares import Shares
from dlq_master.model.why import ReasonCode
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.decisions import Decisions
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.sensitivity.traffic_estimates import TrafficEstimates
from dlq_master.policy.trial.steps import Track
from dlq_master.policy.walk.outcome import Outcome
from dlq_master.store.backup import COPY
from dlq_master.store.batch import HORIZON, JoinToken, Loaded, MemoryWindow, User
from dlq_master.store.tables.accounts import LEVELS, Levels
from dlq_master.store.tables.tenants import Reservation, Team

# More than a cluster can have named between a backup and the loss of its database.
_LOST_EPOCHS = 1_000
_LOST_JOBS = 1_000_000
_LOST_EVENTS = 100_000_000


class Beat(NamedTuple):
    """What a job last said of itself. Never stored: a beat is worth less than a write."""

    step: int | None
    total: int | None
    loss: float | None
    time_s: float


class UnreleasedRank(NamedTuple):
    """What its agent says of a rank whose GPUs cannot be given back."""

    why: str
    ended: bool  # nothing of it runs: its attempt may be over, and its GPUs belong to nobody
    gpu_indexes: tuple[int, ...]  # of its launch; empty: the agent does not know


class PlanFault(NamedTuple):
    """Plans have failed `times` times in a row, in the same place, since `since_s`."""

    where: str  # tells faults apart: what was raised, and where
    words: str
    since_s: float
    times: int
    retry_s: float


@dataclass(slots=True)
class State:
    """The working state: the cluster with its indexes, and what surrounds it."""

    config: MasterConfig
    terms: Terms
    policy: Policy
    cluster: Cluster
    started_s: float  # of this master
    epoch: int
    users: dict[str, User] = field(default_factory=dict)
    tokens: dict[str, JoinToken] = field(default_factory=dict)
    teams: dict[str, Team] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)  # how long jobs have waited for what
    starts: Starts = field(default_factory=Starts)  # as they were foreseen, and as they came
    bookkeeping: Bookkeeping = field(init=False)  # who has held how many GPUs for how long
    stays: Occupancy = field(default_factory=Occupancy)  # of attempts on rented machines
    shares_kept: Shares | None = None  # usage, while the policy knows no shares
    crowd: JobCounts = field(
        default_factory=JobCounts
    )  # jobs that have not ended, by whom they count for
    sessions: dict[NodeId, int] = field(default_factory=dict)
    contacts: dict[NodeId, float] = field(default_factory=dict)  # never stored
    beats: dict[JobId, Beat] = field(default_factory=dict)
    tracks: dict[JobId, Track] = field(default_factory=dict)  # what jobs told of their steps
    told_s: dict[JobId, float] = field(default_factory=dict)  # all of a job's work, by its steps
    sized: dict[JobId, tuple[str, Track]] = field(default_factory=dict)  # elastic jobs, by GPU type
    outbox: Outbox = field(default_factory=Outbox)
    next_job: int = 1
    next_event: int = 1
    next_command: int = 1
    next_session: int = 1
    next_port: int = 0
    ports: dict[int, AttemptKey] = field(default_factory=dict)  # who was given which, last
    loop_lag_s: float = 0.0
    unknown_types: set[JobId] = field(default_factory=set)  # jobs whose GPU type no node has yet
    disk_full: bool = False
    frozen: bool = False  # nothing silent is taken for lost just now
    plan_fault: PlanFault | None = None  # plans fail: a bug, and how often it has been met
    pause: ReasonCode | None = None  # why the last plan could place nothing new
    away: Offloaded = field(default_factory=Offloaded)  # what is planned by another process
    twin_health: HelperHealth = field(default_factory=lambda: HelperHealth("twin"))
    # Of the last plan: what it decided, if it came to that; and once somebody has asked, what would
    # be decided since, and why jobs wait.
    last: Outcome | None = None
    decisions: Decisions | None = None
    glance: ReasonSummary | None = None
    # Ranks that run, or may start, for nobody, and their GPUs as far as known, which are not free.
    # Told anew by every hello.
    strays: dict[NodeId, dict[tuple[AttemptKey, int], tuple[int, ...]]] = field(
        default_factory=dict
    )
    # Ranks that may run and of which their agent has no record, and since when; what it has found
    # of them.
    unaccounted: dict[NodeId, dict[tuple[AttemptKey, int], float]] = field(default_factory=dict)
    unexplained: dict[NodeId, frozenset[tuple[AttemptKey, int]]] = field(default_factory=dict)
    instances: Instances = field(default_factory=Instances)
    # Ranks whose GPUs cannot be given back although they should be gone; told anew likewise.
    clinging: dict[NodeId, dict[tuple[AttemptKey, int], UnreleasedRank]] = field(
        default_factory=dict
    )
    # What was last told of ranks that are being prepared.
    preparing: dict[tuple[AttemptKey, int], str] = field(default_factory=dict)
    starting: set[AttemptKey] = field(default_factory=set)  # gangs that do not run yet
    resizing: set[AttemptKey] = field(default_factory=set)  # ranks of theirs join, or leave
    returned: set[NodeId] = field(default_factory=set)  # nodes that said hello to this master
    holds_told: dict[NodeId, int] = field(default_factory=dict)  # hold revision its ranks have
    gates: Gates = field(default_factory=Gates)  # jobs that may not wait yet
    cancel_late: dict[JobId, None] = field(default_factory=dict)  # jobs that want no late end
    reservations: dict[str, Reservation] = field(default_factory=dict)
    bookings: Bookings = field(default_factory=Bookings)  # who may run into them
    loans: LoanState = field(default_factory=LoanState)
    pools: PoolState = field(default_factory=PoolState)
    risks: Risks = field(default_factory=Risks)  # promises that may not be kept
    retries: Retries = field(default_factory=Retries)  # jobs that the cluster has failed
    journal_horizon: int = 0  # up to this sequence the journal may have been cut
    recent: Recent = field(init=False)  # ended jobs that are still in memory
    rates: SubmitRates = field(init=False)  # how fast users submit
    figures: dict[NodeId, dict[int, Figures]] = field(default_factory=dict)  # of GPUs, never stored
    suspicion: Suspicion = field(default_factory=Suspicion)  # what speaks against nodes
    chosen: Chosen = field(default_factory=lambda: Chosen("", {}, "", 0.0))  # "" = the file's
    beliefs: TrafficEstimates = field(init=False)  # how jobs communicate
    gpu_actions: Mapping[str, Action] = field(init=False)  # what is done about which symptom

    def forget_decisions(self) -> None:
        """The cluster has changed, or is about to: what was worked out for those who asked holds no
        more.
        """
        self.decisions = self.glance = None

    def __post_init__(self) -> None:
        scheduler = self.config.scheduler
        if not self.chosen.policy:
            settings = dict(scheduler.settings)
            self.chosen = Chosen(scheduler.policy, settings, "", self.started_s)
        self.recent = Recent(window_of(self.config))
        self.beliefs = TrafficEstimates(self.config.profiler.bytes_per_s)
        self.gpu_actions = actions_of(self.config.health.actions)
        self.bookkeeping = Bookkeeping(Levels(self.started_s, {}))
        self.rates = SubmitRates(self.config.jobs.submit_rate, self.config.jobs.submit_burst)


def window_of(config: MasterConfig) -> MemoryWindow:
    """Which ended jobs memory holds."""
    return MemoryWindow(float(config.retention.ended_kept), config.retention.ended_most)


def forget(state: State, job_id: JobId) -> None:
    """Let go of an ended job, and of everything that was only kept for it."""
    state.cluster.forget(job_id)
    state.beats.pop(job_id, None)
    state.tracks.pop(job_id, None)
    state.told_s.pop(job_id, None)
    state.sized.pop(job_id, None)
    state.waits.forget(job_id)
    state.unknown_types.discard(job_id)


def note_unknown_type(state: State, job: Job) -> None:
    """Keep in mind a job whose GPU type no registered node has: one that comes may be meant."""
    gpu_types = job.request.gpu_types
    if gpu_types is not None and not job.ended:
        state.cluster.capacity.ready()
        if not state.cluster.capacity.total.keys() >= {*gpu_types}:
            state.unknown_types.add(job.job_id)


def note_cancel_late(state: State, job: Job) -> None:
    """Keep in mind a job that is to end once it would be late."""
    if job.rules.cancel_late and job.steps and not job.ended:
        state.cancel_late[job.job_id] = None


def restore(state: State, loaded: Loaded) -> None:
    """Fill a fresh state with what was loaded. Every silence starts now: leases were granted
    now.
    """
    usage.restore(state.cluster, loaded.meta.get(usage.USAGE))
    for node in loaded.nodes:
        state.cluster.put_node(node)
        state.contacts[node.node_id] = state.started_s
    _recall(state, loaded)
    places = {name: place for place, name in enumerate(in_order(state.config))}
    arrays: dict[Array, Array] = {}
    for job in loaded.jobs:
        if job.array is not None:  # one value for all its tasks, as when they came
            job = job._replace(array=arrays.setdefault(job.array, job.array))
        # The queues may have been put into another order since.
        place = places.get(job.queue)
        base = job.rank_base if place is None else rank_base(place, job.nice)
        if base != job.rank_base:
            job = job._replace(rank_base=base)
        state.cluster.put_job(job if job.ended else believe(state, job))
        note_unknown_type(state, job)
    for attempt in loaded.attempts:
        state.cluster.put_attempt(attempt)
        if attempt.master_port is not None:
            state.ports[attempt.master_port] = attempt.key
        if len(attempt.ranks) > 1 and attempt.live and attempt.started_time_s is None:
            state.starting.add(attempt.key)
    living = state.cluster.attempts.values()
    state.resizing = {attempt.key for attempt in living if attempt.resize is not None}
    state.gates = build(state.cluster.jobs, state.started_s)
    for job in loaded.jobs:
        note_cancel_late(state, job)
    state.retries = retries_of(state.cluster.jobs)
    state.users = {user.name: user for user in loaded.users}
    state.tokens = {token.token_id: token for token in loaded.tokens}
    state.starts = Starts(loaded.foreseen, state.cluster.jobs)
    state.waits = Waits(loaded.waited, state.cluster.jobs.values())
    state.reservations = {one.reservation_id: one for one in loaded.reservations}
    state.bookings.changed = bool(loaded.reservations)
    state.teams = {team.name: team for team in loaded.teams}
    state.pools.machines = Fleet(loaded.machines)
    state.outbox = Outbox(loaded.intentions)
    state.recent.enter(sorted(loaded.jobs, key=lambda job: job.end_time_s or 0.0))
    state.recent.complete_from_s = loaded.complete_from_s
    state.next_job = max(loaded.last_job + 1, int(loaded.meta.get("next_job", "1")))
    state.journal_horizon = int(loaded.meta.get(HORIZON, "0"))
    state.next_event = max(loaded.last_event, state.journal_horizon) + 1
    state.next_command = max(state.outbox, default=0) + 1
    if loaded.meta.get(COPY, "no") == "yes":
        _leap(state)
    state.loans.off = read_switch(loaded.meta.get(SWITCH))
    restore_instances(state.instances, loaded.meta)
    state.cluster.take_touched()  # all of it is on disk
    list(state.stays.take(loaded.attempts, state.cluster.nodes, state.pools, state.started_s))
    state.pools.note_unforetold(loaded.jobs)
    state.bookkeeping = Bookkeeping.begin(state.cluster, loaded.meta.get(LEVELS), state.started_s)


def believe(state: State, job: Job) -> Job:
    """The job with what is believed by now of how it communicates."""
    belief = state.beliefs.of(job)
    if belief is None or belief.profile == job.profile:
        return job
    return job._replace(profile=belief.profile)


def first_meta(state: State) -> dict[str, str]:
    """What must be on disk before this master says anything: it never says it a second time."""
    return {"epoch": str(state.epoch), "next_job": str(state.next_job), COPY: "no"}


def _recall(state: State, loaded: Loaded) -> None:
    """What jobs have taught that are not in memory any more, and what was recorded of their
    traffic.
    """
    for recording in loaded.recordings:
        run = state.beliefs.put(recording)
        if run is not None:
            state.cluster.slowdowns.add(run)
    for job in loaded.completed:
        state.cluster.recall(job)


def _leap(state: State) -> None:
    """We start on a copy of the past: what was named after it was made keeps its name.

    Agents still run, and remember, jobs that the copy does not know; a second job of that number,
    or a second fence (epoch, attempt), would be taken for the first.
    """
    state.epoch += _LOST_EPOCHS
    state.next_job += _LOST_JOBS
    state.next_event += _LOST_EVENTS
