"""The read model: the state of the last commit, for all readers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlq_master.control.attempts.idleness import Activity
from dlq_master.control.deadlines.risks import Risk
from dlq_master.control.forecast.helper_health import Health
from dlq_master.control.loans.state import Followed, SwitchedOff
from dlq_master.control.loop.histogram import Histograms
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.loop.ports import NOBODY_FORESEES, ForeseenStarts, HistoryRecords
from dlq_master.control.loop.turn import State
from dlq_master.control.people import queues, team_use, teams
from dlq_master.control.people.counts import of_user
from dlq_master.control.people.queues import QueueFacts
from dlq_master.control.people.team_use import TeamUse
from dlq_master.control.placement import scheduling
from dlq_master.control.placement.offloaded import Planning
from dlq_master.control.placement.scheduling import delay_of
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.control.read_model.flow import Flow
from dlq_master.control.read_model.job_blocks import JobBlock
from dlq_master.control.read_model.living_tally import LivingTally
from dlq_master.control.read_model.node_tally import Key, NodeSeen, NodeTally
from dlq_master.control.read_model.promise_index import PromiseIndex, PromiseOutcome
from dlq_master.control.read_model.tally import CountedJobs
from dlq_master.control.reservations import reservations
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import Owner
from dlq_master.model.jobs.recording import Belief, Evidence, Recording
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Slot, core_mask
from dlq_master.model.usage.accounting import Level
from dlq_master.model.usage.cost import Costs
from dlq_master.model.why import ReasonCode
from dlq_master.planner.forecasts import Range
from dlq_master.policy.admit import measured_speeds
from dlq_master.policy.order import share
from dlq_master.policy.sensitivity.traffic_estimates import TrafficEstimates
from dlq_master.policy.stop_costs import pause_and_resume_s
from dlq_master.policy.stragglers import StragglerScore
from dlq_master.store.batch import Batch, JoinToken, PastJobs, User
from dlq_master.store.list_order import ListOrder, Rank
from dlq_master.store.stored_tables import (
    GRANTS,
    HELD_GRANTS,
    MACHINES,
    NOTIFY_RULES,
    RESERVATIONS,
    REVOCATIONS,
    TEAMS,
    TOKENS,
    USERS,
)
from dlq_master.store.tables.accounts import Books
from dlq_master.store.tables.chosen_policy import Chosen
from dlq_master.store.tables.notify_rules import NotifyRule, rules_of
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.table import Rows
from dlq_master.store.tables.tenants import GivenGrant, HeldGrant, Reservation, Team

EPOCH_BITS = 32  # of the number of people who left, below the master's epoch
MOST_OWNERS = 20_000  # of past jobs, remembered for those who follow the journal


class Published:
    """Immutable values of the last commit. For the loop's thread only."""

    def __init__(
        self,
        state: State,
        history: HistoryRecords,
        foreseen: ForeseenStarts = NOBODY_FORESEES,
        incidents: Callable[[], tuple[Incident, ...]] = tuple,
    ) -> None:
        """Take over what a fresh state has loaded: all of it is on disk. `incidents`: on what the
        master has failed.
        """
        self.incidents = incidents
        self._state = state
        self._history = history
        self._foreseen = foreseen
        counted = state.counted_jobs or CountedJobs(state.cluster.jobs, state.jobs.counts)
        self._counted = counted
        self._jobs, self._blocks, self.tally = counted.jobs, counted.blocks, counted.tally
        self.living_tally = LivingTally()
        self.node_tally = NodeTally(state.cluster.nodes.keys())
        self.flow = Flow()
        self._promise_index = PromiseIndex()
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._on_node: dict[NodeId, dict[AttemptKey, int]] = {}
        self._kept: dict[NodeId, dict[AttemptKey, int]] = {}
        self._nodes = {node.node_id: node for node in state.cluster.nodes.values()}
        self._users = Rows(USERS, state.people.users.values())
        self._tokens = Rows(TOKENS, state.people.tokens.values())
        self._teams = Rows(TEAMS, state.people.teams.values())
        self._reservations = Rows(RESERVATIONS, state.reservations.by_id.values())
        self._notify_rules = Rows(NOTIFY_RULES, state.people.notify_rules.values())
        self._revocations = Rows(REVOCATIONS, state.people.revocations.values())
        self._grants = Rows(GRANTS, state.people.grants.values())
        self._held_grants = Rows(HELD_GRANTS, state.people.held_grants.values())
        self._copies: tuple[Rows[Any, Any], ...] = (
            self._grants,
            self._held_grants,
            self._users,
            self._tokens,
            self._teams,
            self._reservations,
            self._notify_rules,
            self._revocations,
        )
        self._machines = Fleet(state.machines.fleet.values())
        self._owners: dict[JobId, Owner] = {}
        self._beliefs = TrafficEstimates(state.config.profiler.bytes_per_s)
        for recording in state.trials.traffic:
            self._beliefs.put(recording)
        self.last_sequence = state.journal.next_sequence - 1
        self.epoch = state.epoch
        self._people_left = 0  # how often somebody has lost a right, or may have, since the start
        self.cluster_name = state.config.cluster.name
        self._speeds: tuple[int, Mapping[str, float]] = (-1, {})  # as of so many runs
        self.chosen = state.placement.chosen
        for attempt in state.cluster.attempts.values():
            self._put_attempt(attempt)
        # Promises that are over are kept in the order of their ends.
        promised = [job for job in self._jobs.values() if job.steps]
        for job in sorted(promised, key=lambda job: job.end_time_s or 0.0):
            self._promise_index.change(job)
        for key in self._attempts:
            self._count_living(key.job_id)

    def publish(self, batch: Batch) -> None:
        """Take in a committed batch."""
        self.flow.publish(batch, self._jobs, self._attempts, self._nodes, self._machines)
        self._put_jobs(batch.jobs)
        for attempt in batch.attempts:
            self._put_attempt(attempt)
        known = self.living_tally.known
        changed = {attempt.key.job_id for attempt in batch.attempts}
        for job in batch.jobs:
            if job.live_attempt is not None or job.job_id in known:
                changed.add(job.job_id)
        for job_id in changed:
            self._count_living(job_id)
        for node in batch.nodes:
            self._nodes[node.node_id] = node
            self.node_tally.touched(node.node_id)
        for node_id in batch.forgotten_nodes:
            self._nodes.pop(node_id, None)
            self.node_tally.touched(node_id)
        self._people_left += self._leaving(batch)
        for rows in self._copies:
            if rows.table in batch.changes:
                rows.apply(batch.changes)
        for machine in batch.values(MACHINES):
            self._machines.put(machine)
        for recording in batch.recordings:
            self._beliefs.put(recording)
        if batch.events:
            self.last_sequence = batch.events[-1].seq
        self.epoch = self._state.epoch
        self.chosen = self._state.placement.chosen

    @property
    def policy(self) -> str:
        """The name of the present policy."""
        return self.chosen.policy

    @property
    def promises(self) -> bool:
        """Whether the policy promises deadlines."""
        return self._state.policy.promises is not None

    @property
    def kept_target(self) -> float | None:
        """The share of promises that wrong estimates may not break; None: the policy has no such
        goal.
        """
        rules = self._state.policy.promises
        return None if rules is None or rules.margin is not None else rules.keep

    def with_deadlines(self, user: str, after: int) -> Sequence[JobId]:
        """Jobs with deadlines that have not ended, of this user or of EVERYBODY, by id."""
        return self._promise_index.living(user, after)

    def promised_count(self, user: str) -> int:
        """The number of jobs of this user that have a promise."""
        return self._promise_index.promised_count(user)

    def endangered(self) -> Sequence[JobId]:
        """Jobs whose promise is at risk."""
        return sorted(self._state.deadlines.risks.told)

    def promises_over(self) -> Iterator[tuple[Job, PromiseOutcome]]:
        """Ended promises, the newest first."""
        return self._promise_index.ended()

    @property
    def promises_over_from_s(self) -> float:
        """`promises_over` has all promises that ended after this."""
        return max(0.0, self.complete_from_s, self._promise_index.dropped_s)

    @property
    def profile_s(self) -> float | None:
        """Seconds of a trial (T_profile); None: the policy has no trials."""
        return self._state.policy.profile_s

    @property
    def filed(self) -> Chosen:
        """The policy of master.toml."""
        scheduler = self._state.config.scheduler
        return Chosen(scheduler.policy, scheduler.settings, "", self._state.started_s)

    @property
    def others_shown(self) -> str:
        """How much users see of the jobs of others."""
        return self._state.config.visibility.others

    def planning(self) -> Planning:
        """The state of the planning process."""
        return self._state.placement.offloaded.told()

    def helpers(self) -> tuple[Health, ...]:
        """The health of the planner, the twin and the policy."""
        state, fault = self._state, self._state.placement.fault
        policy = Health("policy")
        if fault is not None:
            policy = Health("policy", fault.times, fault.since_s, fault.words)
        return state.placement.offloaded.health.told(), state.forecast.twin_health.told(), policy

    def loop_lag_s(self) -> float:
        """How late the last turn came."""
        return self._state.loop_lag_s

    @property
    def requeues_frozen(self) -> bool:
        """Whether requeues are frozen: silent nodes are not given up."""
        return self._state.frozen

    def forget(self, job_id: JobId) -> None:
        """Drop an ended job, which is read from the disk from now on."""
        self._counted.forget(job_id)

    def _put_jobs(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            before = self._jobs.get(job.job_id)
            if job.steps or (before is not None and before.steps):
                self._promise_index.change(job)
            self._counted.put(job)

    def _count_living(self, job_id: JobId) -> None:
        """Keep the numbers of jobs that hold GPUs."""
        job = self._jobs.get(job_id)
        key = None if job is None else job.live_key
        attempt = None if key is None else self._attempts.get(key)
        self.living_tally.look(job_id, job, attempt)
        for node_id in () if attempt is None else attempt.lease.allocation.node_ids:
            self.node_tally.touched(node_id)

    def _put_attempt(self, attempt: Attempt) -> None:
        living = attempt.live
        before = self._attempts.get(attempt.key)
        self._keep(before, attempt if living else None)
        if before is not None and before.lease.allocation != attempt.lease.allocation:
            for node_id in before.place.node_ids:
                self._on_node[node_id].pop(attempt.key, None)
                self.node_tally.touched(node_id)
        if living:
            self._attempts[attempt.key] = attempt
        else:
            self._attempts.pop(attempt.key, None)
        for slot in attempt.place.slots:
            here = self._on_node.setdefault(slot.node_id, {})
            self.node_tally.touched(slot.node_id)
            if living:
                here[attempt.key] = 0 if attempt.is_out else slot.mask
            else:
                here.pop(attempt.key, None)

    def _keep(self, before: Attempt | None, after: Attempt | None) -> None:
        """GPUs that are kept for a job that will start there."""
        if before is not None and before.regrant is not None:
            for slot in before.regrant.slots:
                self._kept[slot.node_id].pop(before.key, None)
        if after is not None and after.regrant is not None:
            for slot in after.regrant.slots:
                self._kept.setdefault(slot.node_id, {})[after.key] = slot.mask

    # --- jobs ---------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """One job, live or ended."""
        return self._jobs.get(job_id) or self._history.job(job_id)

    def owner(self, job_id: JobId) -> Owner | None:
        """The owner of a job; None: it is unknown. Cheap for many jobs too."""
        job = self._jobs.get(job_id)
        if job is not None:
            return Owner(job.user, job.person, job.submit_time_s)
        known = self._owners.get(job_id) or self._history.owner(job_id)
        if known is not None:
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            self._owners[job_id] = known
        return known

    def jobs(self) -> Iterator[Job]:
        """Live and recently ended jobs, by id."""
        return iter(self._jobs.values())

    def block_numbers(self, user: str, after: int) -> Sequence[int]:
        """The blocks of these jobs with ids above `after`: of one user's, or of EVERYBODY's."""
        return self._blocks.numbers(user, after)

    def block(self, user: str, number: int) -> JobBlock:
        """One of them: the same object until one of its jobs changes."""
        return self._blocks.block(user, number)

    @property
    def complete_from_s(self) -> float:
        """All jobs that ended after this are among `jobs`."""
        return self._state.jobs.recent.complete_from_s

    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
        """Ended jobs on the disk with ids above `after`, by id; some are also in `jobs`."""
        return await self._history.past_jobs(wanted, after, limit)

    async def past_in_order(
        self, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
    ) -> Sequence[Job]:
        """Ended jobs on the disk after a place in this order; some are also in `jobs`."""
        return await self._history.past_in_order(wanted, order, after, limit)

    async def past_count(self, wanted: PastJobs) -> int:
        """The number of ended jobs on the disk, with those in `jobs`."""
        return await self._history.past_count(wanted)

    async def books(self, first_day: int, last_day: int, now_s: float) -> Books:
        """The usage from the first day to the last, until now, as of the last commit."""
        return await self._history.books(first_day, last_day, now_s)

    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs:
        """The costs of these days, until now, as of the last commit."""
        return await self._history.costs(first_day, last_day, now_s)

    def promise_risks(self) -> tuple[int, int]:
        """How many promises are missed by jobs that go on, and how many are told to be at risk,
        these included.
        """
        risks = self._state.deadlines.risks
        return len(risks.missed), len(risks.told)

    def pending_gpus(self) -> Counter[tuple[str, str]]:
        """The GPUs for which jobs wait, by queue and by the code of their main reason."""
        return self._state.jobs.waits.pending

    def forecast_within(self) -> float | None:
        """The part of the newest starts that came in their forecast range; None: there are none."""
        return self._state.forecast.accuracy.within_share

    def plan_times(self) -> Histograms:
        """Histograms of the planner's times, by stage."""
        return self._state.placement.offloaded.plans

    def wait_code(self, job: Job, now_s: float) -> ReasonCode | None:
        """The main reason why a job waits; None: it runs or has ended."""
        return scheduling.main_reason(self._state, job, now_s)

    def last_plan(self, now_s: float) -> object:
        """The source of `wait_code`: while it is the same object, so are they."""
        return scheduling.listed_summary(self._state, now_s)

    def risk(self, job_id: JobId) -> Risk | None:
        """Why its promise is at risk; None: it is not."""
        return self._state.deadlines.risks.told.get(job_id)

    def delay(self) -> str:
        """Why deadlines are not judged now; empty: they are."""
        return delay_of(self._state.placement.offloaded)

    def told_s(self, job_id: JobId) -> float | None:
        """The run time of a job in seconds, by its own steps; None: unknown yet."""
        return self._state.trials.work_by_steps_s.get(job_id)

    def stop_cost_s(self, job: Job) -> float:
        """The seconds that a pause and a resume of the job cost."""
        return pause_and_resume_s(self._state.cluster, job)

    @property
    def stop_cost_changes(self) -> int:
        """A number that changes when stop costs of unchanged jobs may."""
        return self._state.cluster.costs.changes

    def start_range(self, job: Job) -> Range | None:
        """The likely start of a waiting job; None: unknown, or it does not wait."""
        return self._foreseen.start(job)

    def starts(self, now_s: float) -> object:
        """The source of `start_range`: another object after each forecast."""
        return self._foreseen.source(now_s)

    def spec(self, job_id: JobId) -> bytes:
        """The submitted spec (serialized dlq.v1.JobSpec); empty for an unknown job."""
        return self._history.spec(job_id) or b""

    def attempt(self, key: AttemptKey) -> Attempt | None:
        """A live attempt; None: there is none."""
        return self._attempts.get(key)

    def living(self) -> Iterator[Attempt]:
        """All live attempts."""
        return iter(self._attempts.values())

    def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        """All attempts of a job, oldest first."""
        return self._history.attempts(job_id)

    def progress(self, job_id: JobId) -> Beat | None:
        """The last report of the job about itself. An attempt that begins from nothing, as one
        after a trial on fewer GPUs, has not said anything before its own first word.
        """
        beat, job = self._state.jobs.beats.get(job_id), self._state.cluster.jobs.get(job_id)
        if beat is None or job is None or job.live_attempt is None:
            return beat
        attempt = self._attempts.get(AttemptKey(job_id, job.live_attempt))
        if attempt is None or attempt.resume_from is not None:
            return beat
        return beat if beat.time_s >= attempt.assigned_time_s else None

    def activity(self, key: AttemptKey) -> Activity:
        """The words and reports about a living attempt, as of now."""
        attempts = self._state.attempts
        idle = attempts.idleness.found.get(key)
        return Activity(
            "; ".join(idle.values()) if idle else "",
            attempts.stalls.told.get(key.job_id, ""),
            attempts.stragglers.words(key),
            attempts.idleness.uses.get(key, {}),
        )

    def inactive(self) -> tuple[int, int]:
        """The numbers of idle and of stalled attempts."""
        attempts = self._state.attempts
        return len(attempts.idleness.found), len(attempts.stalls.told)

    def straggler(self, node_id: NodeId) -> StragglerScore | None:
        """How much longer a node works on a step than its peers; None: nobody knows."""
        return self._state.attempts.stragglers.scores.get(node_id)

    def suspected_stragglers(self) -> int:
        """The number of stragglers."""
        return sum(node.doubted for node in self._state.cluster.nodes.values())

    # --- traffic ------------------------------------------------------------------------------

    def belief(self, job: Job) -> Belief | None:
        """The estimate of its traffic, and its source; None: there is none yet."""
        return self._beliefs.of(job)

    def packing(self) -> Packing | None:
        """The limits of the last plan, if its policy places by how jobs communicate."""
        return self._state.cluster.packing

    def recordings(self, job_id: JobId) -> Sequence[Recording]:
        """Its recordings of traffic, made or ordered, the oldest first."""
        return self._history.recordings(job_id)

    def evidence(self, key: AttemptKey) -> Sequence[Evidence]:
        """The reports of the nodes of an attempt so far, in rank order."""
        return self._history.evidence(key)

    # --- nodes --------------------------------------------------------------------------------

    def node(self, node_id: NodeId) -> Node | None:
        """One node."""
        return self._nodes.get(node_id)

    def nodes(self) -> Sequence[Node]:
        """All nodes in the order of their ids."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def declared_speeds(self) -> Mapping[str, float]:
        """The declared speeds of GPU types."""
        return self._state.cluster.declared_speeds()

    def measured_speeds(self) -> Mapping[str, float]:
        """The speeds of GPU types as measured by jobs that ran on several."""
        cluster = self._state.cluster
        known, home = cluster.profiling, cluster.own.home
        if self._speeds[0] != known.taught:
            self._speeds = known.taught, measured_speeds.shown(known, cluster.speeds, home)
        return self._speeds[1]

    def contact_s(self, node_id: NodeId) -> float | None:
        """When this master last heard of the node; None: never."""
        if node_id not in self._state.nodes.greeted:
            return None
        return self._state.nodes.contacts.get(node_id)

    def attempts_on(self, node_id: NodeId) -> Sequence[AttemptKey]:
        """The live attempts with a rank on the node."""
        return sorted(self._on_node.get(node_id, {}))

    def free_gpu_count(self, node_id: NodeId) -> int:
        """The GPUs of the node that are neither held nor kept for a job."""
        node = self._nodes[node_id]
        held = node.withheld
        for claims in (self._on_node, self._kept):
            for mask in claims.get(node_id, {}).values():
                held |= mask
        # A GPU that is gone may still be held: it is not free, and takes none away.
        return sum(not held >> gpu.index & 1 for gpu in node.gpus)

    def free_core_count(self, node_id: NodeId) -> int:
        """The job cores of the node that are neither held nor kept for a job."""
        free = core_mask(self._nodes[node_id].cores)
        for claims in (self._on_node, self._kept):
            for mask in claims.get(node_id, {}).values():
                free &= ~mask
        return free.bit_count()

    def holders(self, node_id: NodeId) -> dict[int, AttemptKey]:
        """The held GPUs of the node, and their attempts."""
        here = self._on_node.get(node_id, {})
        return {
            index: key for key, mask in here.items() for index in Slot(node_id, mask).gpu_indices
        }

    def node_sums(self) -> Mapping[Key, int]:
        """The numbers of nodes and GPUs by state; costs O(changed nodes)."""
        moved = self._state.nodes.use_moved
        for node_id in moved:
            self.node_tally.touched(node_id)
        moved.clear()
        return self.node_tally.sums(self._seen)

    def _seen(self, node_id: NodeId) -> NodeSeen | None:
        node = self._nodes.get(node_id)
        if node is None:
            return None
        held = self.holders(node_id)
        queues = {
            index: self._jobs[key.job_id].queue
            for index, key in held.items()
            if key.job_id in self._jobs
        }
        unused = self._state.nodes.unused_gpus.get(node_id, frozenset())
        return NodeSeen(node, bool(self._on_node.get(node_id)), held, queues, unused)

    def figures(self, node_id: NodeId) -> Mapping[int, Figures]:
        """The last measurements of the node's GPUs; empty before its first report."""
        return self._state.nodes.gpu_figures.get(node_id, {})

    def levels(self) -> Mapping[str, Level]:
        """GPUs of each pool: held by jobs, free for them, neither."""
        return self._state.attempts.bookkeeping.sums

    def followed_load(self) -> Followed | None:
        """The load that automatic loans follow; None: there are none."""
        return self._state.loans.followed

    def loans_off(self) -> SwitchedOff | None:
        """The user that switched automatic loans off; None: they are on."""
        return self._state.loans.off

    def server_words(self, node_id: NodeId) -> str:
        """The reason for which a server of the inference side waits; empty: none."""
        return self._state.loans.words.get(node_id, "")

    def machines(self) -> Sequence[Machine]:
        """All that are, or were lately, rented; by when they were asked for."""
        return sorted(self._machines.values(), key=lambda one: (one.asked_s, one.request_id))

    def open_machines(self) -> Sequence[Machine]:
        """The rented machines that may exist and cost money."""
        return self._machines.open()

    def pools(self) -> tuple[Sequence[PoolConfig], RentingConfig, Mapping[str, str]]:
        """The pools that may be rented, their costs, and why nothing is rented just now, by
        pool.
        """
        state = self._state
        words = {**state.machines.words}
        words |= {
            name: f"{words.get(name) or 'it does not say what is there'}: {fault}"
            for name, fault in state.machines.list_faults.items()
        }
        return state.config.pools, state.config.renting, words

    # --- queues -------------------------------------------------------------------------------

    def queues(self) -> Sequence[QueueFacts]:
        """All queues, by priority."""
        thresholds = self._state.cluster.ordering.thresholds
        return queues.count(self._state.config, self.policy, thresholds, self._counted.by_queue)

    def submit_limits(self, user: str, now_s: float) -> tuple[int, float]:
        """How many jobs this user may submit at once now, and how many a second in the long run."""
        jobs, limits = self._state.jobs, self._state.config.jobs
        more = limits.queued_per_user - jobs.counts[of_user(user)]
        return max(0, min(more, jobs.submit_rates.left(user, now_s))), limits.submit_rate

    def freeze_reason(self) -> str:
        """The functions that are out of order, with reasons, in words; empty: none."""
        frozen = ReasonCode.FREEZE if self._state.frozen else None
        fault = self._state.placement.fault
        if fault is not None:
            return f"plans fail ({fault.words}; {fault.times} in a row): nothing starts or lapses"
        return scheduling.in_words(self._state.placement.nothing_placed or frozen)

    # --- people -------------------------------------------------------------------------------

    def user(self, name: str) -> User | None:
        """One user."""
        return self._users.get(name)

    def users(self) -> Sequence[User]:
        """All users by name."""
        return [self._users[name] for name in sorted(self._users)]

    @property
    def people_version(self) -> int:
        """Another one after each removal of a user, each other role, each other end of rights, and
        each start. Never 0.
        """
        return (self.epoch << EPOCH_BITS) + self._people_left + 1

    def note_lost_rights(self) -> None:
        """Note that a user has lost a right by an event that is not stored."""
        self._people_left += 1

    def _leaving(self, batch: Batch) -> int:
        """How many users of this batch are not who they were, and its revocations."""
        if not batch.changes:
            return 0
        revoked, changes = len(batch.changes.get(REVOCATIONS, ())), batch.changes.get(USERS, {})
        revoked += len(batch.changes.get(GRANTS, ()))
        known = [(self._users.get(name), after) for name, after in changes.items()]
        left = sum(before is not None and not _is_same(before, after) for before, after in known)
        return revoked + left

    def teams(self) -> Sequence[Team]:
        """All teams by name."""
        return [self._teams[name] for name in sorted(self._teams)]

    def notify_rules(self, user: str = "") -> Sequence[NotifyRule]:
        """The rules of a user, or of all, the oldest first."""
        if user:
            return rules_of(self._notify_rules, user)
        return sorted(self._notify_rules.values(), key=lambda rule: rule.number)

    @property
    def revocations(self) -> Mapping[str, Revocation]:
        """All revocations by subject."""
        return self._revocations

    @property
    def grants(self) -> Mapping[str, GivenGrant]:
        """Grants that this cluster has given, by serial."""
        return self._grants

    @property
    def held_grants(self) -> Mapping[str, HeldGrant]:
        """Grants that this cluster has got, by serial."""
        return self._held_grants

    def reservations(self) -> Sequence[Reservation]:
        """The reservations that are not over, the first to begin first."""
        return sorted(self._reservations.values(), key=lambda one: (one.begin_s, one.node_ids))

    def on_reserved(self, one: Reservation) -> tuple[Sequence[JobId], Sequence[JobId]]:
        """The jobs that hold GPUs of its nodes, and those of them that may run into it."""
        return reservations.on_them(self._state, one)

    def team_uses(self, now_s: float) -> Mapping[str, TeamUse]:
        """The present use of teams and of accounts: O(attempts that live and accounts)."""
        held = [
            (self._jobs[key.job_id], attempt.lease.allocation.width)
            for key, attempt in self._attempts.items()
        ]
        cluster, rules = self._state.cluster, self._state.policy.shares
        used = share.usage(cluster, now_s)
        waiting = self._counted.by_account
        ratios = {} if rules is None else share.ratios(used, waiting.asking(), rules)
        return team_use.count(held, waiting, used, ratios)

    def team_notice(self) -> str:
        """Why quotas, limits and shares of teams make no difference now; empty: they do, or there
        are no teams.
        """
        return teams.no_difference(self._state) if self._teams else ""

    def tokens(self) -> Sequence[JoinToken]:
        """All join tokens that have not been revoked or expired."""
        return [self._tokens[token_id] for token_id in sorted(self._tokens)]

    # --- the journal --------------------------------------------------------------------------

    def events(self, after: int, limit: int, job_id: JobId | None = None) -> Sequence[JournalEvent]:
        """Committed events with a sequence above `after`, oldest first."""
        return self._history.events(after, limit, job_id)

    @property
    def journal_horizon(self) -> int:
        """Up to this sequence what does not belong to a living job may have been cut."""
        return self._state.journal.horizon


def _is_same(before: User, after: User | None) -> bool:
    """Whether the name is still the same person's, with the same role."""
    if after is None:
        return False
    return (before.role, before.key, before.created_time_s) == (
        after.role,
        after.key,
        after.created_time_s,
    )
