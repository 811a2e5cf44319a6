"""A loop without a disk or a scheduler: answers the rpc room's questions from plain dicts.

It keeps what the real loop promises to that room: an answer after the change is published, one
answer per request id, versions that rise. It places nothing; tests say what is placed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self
from zlib import crc32

from dlq_common.clock import Clock
from dlq_common.errors import (
    AlreadyExists,
    Conflict,
    DlqError,
    IllegalTransition,
    NotFound,
    Unauthenticated,
)
from dlq_master.control import stimuli as say
from dlq_master.control.attempts.idleness import Activity
from dlq_master.control.deadlines.risks import Risk
from dlq_master.control.forecast.helper_health import Health
from dlq_master.control.loans.state import Followed, SwitchedOff
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.loop.watch import EVERYTHING, Interest
from dlq_master.control.people.queues import LevelFacts, QueueFacts
from dlq_master.control.people.team_use import TeamUse
from dlq_master.control.placement.offloaded import Planning
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.control.read_model.job_blocks import JobBlock, JobBlocks
from dlq_master.control.read_model.promise_index import PromiseIndex, PromiseOutcome
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli.jobs import SubmittedGroup
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankStatus
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.person import Owner
from dlq_master.model.jobs.recording import Belief, Evidence, Recording
from dlq_master.model.jobs.reward import Step
from dlq_master.model.lease import Lease, LeaseKind
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.nodes.node_steps import GpusCleared, step
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.usage.accounting import Account, Level, Used
from dlq_master.model.usage.cost import Costs, Stay, costs
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.planner.forecasts import Range
from dlq_master.planner.process import Facts
from dlq_master.store.batch import JoinToken, PastJobs, User
from dlq_master.store.list_order import ListOrder, Rank
from dlq_master.store.tables.accounts import Books
from dlq_master.store.tables.chosen_policy import Chosen
from dlq_master.store.tables.notify_rules import NotifyRule, rules_of
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import GivenGrant, HeldGrant, Reservation, Team
from support.memory_store import admits, in_order

EPOCH = 3


class FakeStream:
    """Every event, whatever its reader wants."""

    def __init__(self, published: FakeRead, committed: asyncio.Event, after: int) -> None:
        self._published, self._committed, self.seen = published, committed, after

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is kept of it."""

    async def __aiter__(self) -> AsyncIterator[JournalEvent]:
        while True:
            for event in await self.more():
                yield event

    async def more(self, patience_s: float | None = None) -> Sequence[JournalEvent]:
        if not self._published.events(self.seen, 1):
            self._committed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._committed.wait(), patience_s)
        events = self._published.events(self.seen, 1000)
        self.seen = events[-1].seq if events else self.seen
        return events


@dataclass
class FakeRead(Published):
    """What is published: plain dicts that tests fill."""

    clock: Clock
    cluster_name: str = "lab"
    incidents: Callable[[], tuple[Incident, ...]] = tuple
    epoch: int = EPOCH
    chosen: Chosen = field(default_factory=lambda: Chosen("fifo", {}, "", 0.0))
    plan: object = field(default_factory=object)
    stop_cost_changes: int = 0
    all_jobs: dict[JobId, Job] = field(default_factory=dict)
    specs: dict[JobId, bytes] = field(default_factory=dict)
    all_attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    all_nodes: dict[NodeId, Node] = field(default_factory=dict)
    activities: dict[AttemptKey, Activity] = field(default_factory=dict)
    all_figures: dict[NodeId, dict[int, Figures]] = field(default_factory=dict)
    all_users: dict[str, User] = field(default_factory=dict)
    all_tokens: dict[str, JoinToken] = field(default_factory=dict)
    all_teams: dict[str, Team] = field(default_factory=dict)
    all_notify_rules: dict[str, NotifyRule] = field(default_factory=dict)
    all_revocations: dict[str, Revocation] = field(default_factory=dict)
    all_grants: dict[str, GivenGrant] = field(default_factory=dict)
    all_held_grants: dict[str, HeldGrant] = field(default_factory=dict)
    lost_rights: int = 0
    all_reservations: dict[str, Reservation] = field(default_factory=dict)
    journal: list[JournalEvent] = field(default_factory=list)
    beats: dict[JobId, Any] = field(default_factory=dict)
    beliefs: dict[JobId, Belief] = field(default_factory=dict)
    all_recordings: list[Recording] = field(default_factory=list)
    all_evidence: list[Evidence] = field(default_factory=list)
    past: dict[JobId, Job] = field(default_factory=dict)  # ended jobs that have left memory
    complete_from_s: float = -math.inf
    past_reads: int = 0
    past_gate: asyncio.Event | None = None  # until it is set, nobody gets past jobs
    risks: dict[JobId, Risk] = field(default_factory=dict)
    uses: dict[Account, Used] = field(default_factory=dict)
    pool_uses: dict[tuple[int, str], Level] = field(default_factory=dict)
    rented: list[Machine] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    start_ranges: dict[JobId, Range] = field(default_factory=dict)
    journal_horizon: int = 0
    promising: bool = True  # whether the policy promises deadlines
    others_shown: str = "named"  # of other people's jobs

    @property
    def policy(self) -> str:
        return self.chosen.policy

    @property
    def profile_s(self) -> float | None:
        return None

    @property
    def promises(self) -> bool:
        return self.promising

    @property
    def filed(self) -> Chosen:
        return Chosen("fifo", {}, "", 0.0)

    def loop_lag_s(self) -> float:
        return 0.0

    def helpers(self) -> tuple[Health, ...]:
        return (Health("planner"), Health("twin"), Health("policy"))

    def planning(self) -> Planning:
        return Planning(Facts("resting", None, 3, 1, 2, 0.25, 0.5, "it ended", 1.5), 1, 7)

    def job(self, job_id: JobId) -> Job | None:
        return self.all_jobs.get(job_id) or self.past.get(job_id)

    def owner(self, job_id: JobId) -> Owner | None:
        job = self.job(job_id)
        return None if job is None else Owner(job.user, job.person, job.submit_time_s)

    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
        self.past_reads += 1
        if self.past_gate is not None:
            await self.past_gate.wait()
        ended = {**self.past, **self.all_jobs}
        found = (ended[job_id] for job_id in sorted(ended) if job_id > after)
        return [job for job in found if admits(wanted, job)][:limit]

    async def past_in_order(
        self, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
    ) -> Sequence[Job]:
        self.past_reads += 1
        found = [job for job in {**self.past, **self.all_jobs}.values() if admits(wanted, job)]
        return in_order(found, order, after, limit)

    async def past_count(self, wanted: PastJobs) -> int:
        return sum(admits(wanted, job) for job in {**self.past, **self.all_jobs}.values())

    async def books(self, first_day: int, last_day: int, now_s: float) -> Books:
        days = range(first_day, last_day + 1)
        uses = {account: spent for account, spent in self.uses.items() if account.day in days}
        return Books(0.0, uses, {key: at for key, at in self.pool_uses.items() if key[0] in days})

    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs:
        days = range(first_day, last_day + 1)
        return costs(self.rented, self.stays, self.all_jobs.values(), days, now_s)

    def levels(self) -> Mapping[str, Level]:
        return {}

    def jobs(self) -> Iterator[Job]:
        return iter(list(self.all_jobs.values()))

    def block_numbers(self, user: str, after: int) -> Sequence[int]:
        return JobBlocks(self.all_jobs).numbers(user, after)

    def block(self, user: str, number: int) -> JobBlock:
        return JobBlocks(self.all_jobs).block(user, number)

    def starts(self, now_s: float) -> object:
        return None

    def wait_code(self, job: Job, now_s: float) -> ReasonCode | None:
        return ReasonCode.RESOURCES if job.waiting else None

    def last_plan(self, now_s: float) -> object:
        return self.plan

    def risk(self, job_id: JobId) -> Risk | None:
        return self.risks.get(job_id)

    def endangered(self) -> Sequence[JobId]:
        return sorted(self.risks)

    def _index(self) -> PromiseIndex:
        index = PromiseIndex()
        for job in self.all_jobs.values():
            index.change(job)
        return index

    def with_deadlines(self, user: str, after: int) -> Sequence[JobId]:
        return self._index().living(user, after)

    def promised_count(self, user: str) -> int:
        return self._index().promised_count(user)

    def promises_over(self) -> Iterator[tuple[Job, PromiseOutcome]]:
        return self._index().ended()

    @property
    def promises_over_from_s(self) -> float:
        return max(0.0, self.complete_from_s)

    @property
    def kept_target(self) -> float | None:
        return 0.99 if self.promising else None

    def delay(self) -> str:
        return ""

    def told_s(self, job_id: JobId) -> float | None:
        return None

    def stop_cost_s(self, job: Job) -> float:
        return 60.0

    def belief(self, job: Job) -> Belief | None:
        return self.beliefs.get(job.job_id)

    def packing(self) -> Packing | None:
        return None

    def recordings(self, job_id: JobId) -> Sequence[Recording]:
        return [one for one in self.all_recordings if one.key.job_id == job_id]

    def evidence(self, key: AttemptKey) -> Sequence[Evidence]:
        return [part for part in self.all_evidence if part.key == key]

    def start_range(self, job: Job) -> Range | None:
        return self.start_ranges.get(job.job_id)

    def spec(self, job_id: JobId) -> bytes:
        return self.specs.get(job_id, b"")

    def attempt(self, key: AttemptKey) -> Attempt | None:
        found = self.all_attempts.get(key)
        return found if found is not None and found.live else None

    def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        return [each for key, each in sorted(self.all_attempts.items()) if key.job_id == job_id]

    def activity(self, key: AttemptKey) -> Activity:
        return self.activities.get(key, Activity("", "", "", {}))

    def inactive(self) -> tuple[int, int]:
        return 0, 0

    def straggler(self, _node_id: NodeId) -> None:
        return None

    def suspected_stragglers(self) -> int:
        return 0

    def progress(self, job_id: JobId) -> Any:
        return self.beats.get(job_id)

    def node(self, node_id: NodeId) -> Node | None:
        return self.all_nodes.get(node_id)

    def nodes(self) -> Sequence[Node]:
        return [self.all_nodes[name] for name in sorted(self.all_nodes)]

    def contact_s(self, node_id: NodeId) -> float | None:
        return self.all_nodes[node_id].last_contact_s if node_id in self.all_nodes else None

    def holders(self, node_id: NodeId) -> dict[int, AttemptKey]:
        return {
            index: key
            for key in self.attempts_on(node_id)
            for slot in self.all_attempts[key].lease.allocation.slots
            if slot.node_id == node_id
            for index in slot.gpu_indices
        }

    def figures(self, node_id: NodeId) -> Mapping[int, Figures]:
        return self.all_figures.get(node_id, {})

    def declared_speeds(self) -> Mapping[str, float]:
        return {}

    def measured_speeds(self) -> Mapping[str, float]:
        return {}

    def free_gpu_count(self, node_id: NodeId) -> int:
        return len(self.all_nodes[node_id].gpus)

    def free_core_count(self, node_id: NodeId) -> int:
        return self.all_nodes[node_id].cores

    def machines(self) -> tuple[Machine, ...]:
        return tuple(self.rented)

    def pools(self) -> tuple[tuple[PoolConfig, ...], RentingConfig, Mapping[str, str]]:
        return (), RentingConfig(), {}

    def followed_load(self) -> Followed | None:
        return None

    def loans_off(self) -> SwitchedOff | None:
        return None

    def server_words(self, node_id: NodeId) -> str:
        return ""

    def attempts_on(self, node_id: NodeId) -> Sequence[AttemptKey]:
        return [
            key
            for key, each in self.all_attempts.items()
            if each.live and node_id in each.lease.allocation.node_ids
        ]

    def user(self, name: str) -> User | None:
        return self.all_users.get(name)

    @property
    def people_version(self) -> int:
        people = [(one.name, one.role) for one in self.users()]
        return 1 + self.lost_rights + crc32(repr([people, sorted(self.all_revocations)]).encode())

    def note_lost_rights(self) -> None:
        self.lost_rights += 1

    def users(self) -> Sequence[User]:
        return [self.all_users[name] for name in sorted(self.all_users)]

    def tokens(self) -> Sequence[JoinToken]:
        return list(self.all_tokens.values())

    @property
    def revocations(self) -> dict[str, Revocation]:
        return self.all_revocations

    @property
    def grants(self) -> dict[str, GivenGrant]:
        return self.all_grants

    @property
    def held_grants(self) -> dict[str, HeldGrant]:
        return self.all_held_grants

    def notify_rules(self, user: str = "") -> Sequence[NotifyRule]:
        rules = self.all_notify_rules
        return rules_of(rules, user) if user else list(rules.values())

    def reservations(self) -> Sequence[Reservation]:
        return list(self.all_reservations.values())

    def on_reserved(self, one: Reservation) -> tuple[Sequence[JobId], Sequence[JobId]]:
        return (), ()

    def teams(self) -> Sequence[Team]:
        return [self.all_teams[name] for name in sorted(self.all_teams)]

    def team_uses(self, now_s: float) -> Mapping[str, TeamUse]:
        return {}

    def team_notice(self) -> str:
        return ""

    def queues(self) -> Sequence[QueueFacts]:
        return [QueueFacts("default", 0, "fifo", True, (LevelFacts(None, 2, 1),), 4, 16, 1)]

    def submit_limits(self, user: str, now_s: float) -> tuple[int, float]:
        return 10_000, 100.0

    def freeze_reason(self) -> str:
        return ""

    def events(self, after: int, limit: int, job_id: JobId | None = None) -> Sequence[JournalEvent]:
        wanted = [e for e in self.journal if e.seq > after and job_id in (None, e.job_id)]
        return wanted[:limit]

    @property
    def last_sequence(self) -> int:  # type: ignore[override]  # it follows from the list
        return len(self.journal)


class FakeControl:
    """The rpc room's `Control`. `asked` and `told` hold every stimulus, in order."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.published = FakeRead(clock)
        self.asked: list[Any] = []
        self.told: list[Any] = []
        self.arrived = asyncio.Event()  # something was asked or told
        self.welcome: dict[str, Any] = {}  # what the next Opened says besides its defaults
        self.failure: Exception | None = None  # what `ask` raises instead of answering
        self.answers: dict[type, Callable[[Any], Any]] = {}  # to stimuli of which it knows nothing
        self._answered: dict[tuple[str, str], Any] = {}
        self._names_given: set[str] = set()
        self._sessions = 0
        self._committed = asyncio.Event()

    async def ask(self, stimulus: Any) -> Any:
        await asyncio.sleep(0)
        self.asked.append(stimulus)
        self._notice()
        if self.failure is not None:
            raise self.failure
        if type(stimulus) in self.answers:
            return self.answers[type(stimulus)](stimulus)
        key = self._key(stimulus)
        if key is not None and key in self._answered:
            return self._answered[key]
        answer = getattr(self, f"_{type(stimulus).__name__}")(stimulus)
        if key is not None:
            self._answered[key] = answer
        return answer

    def tell(self, stimulus: Any) -> None:
        self.told.append(stimulus)
        self._notice()

    def current(self) -> FakeRead:
        return self.published

    def watch(
        self, after: int, interest: Interest = EVERYTHING, *, gathered: bool = False
    ) -> FakeStream:
        return FakeStream(self.published, self._committed, after)

    # --- what tests arrange ---------------------------------------------------------------------

    def note(self, kind: str, **facts: Any) -> JournalEvent:
        """Add an event to the journal."""
        event = JournalEvent(
            kind=kind, time_s=self.clock.now_s(), seq=len(self.published.journal) + 1, **facts
        )
        self.published.journal.append(event)
        self._committed.set()
        return event

    def add_user(self, name: str, role: str, uid: int = 1000) -> User:
        # The first of a name has been there for ever; whoever gets it later comes now.
        since_s = self.clock.now_s() if name in self._names_given else 0.0
        self._names_given.add(name)
        user = User(name, role, uid, uid, (), since_s)
        self.published.all_users[name] = user
        return user

    def add_node(self, node_id: str) -> Node:
        node = Node(NodeId(node_id), (), registered_time_s=self.clock.now_s())
        self.published.all_nodes[node.node_id] = node
        return node

    def place(self, job_id: JobId, *node_ids: str) -> Attempt:
        """Let the job run, one GPU on each node."""
        job = self.published.all_jobs[job_id]
        key = AttemptKey(job_id, job.attempts + 1)
        slots = tuple(Slot(NodeId(node_id), 1) for node_id in node_ids)
        attempt = Attempt(
            key=key,
            epoch=EPOCH,
            lease=Lease(
                LeaseKind.BE,
                Allocation(slots),
                Fence(EPOCH, key.number),
                self.clock.now_s() + 300,
                3600.0,
            ),
            state=AttemptState.RUNNING,
            assigned_time_s=self.clock.now_s(),
            started_time_s=self.clock.now_s(),
            ranks=tuple(RankStatus(slot.node_id) for slot in slots),
        )
        self.published.all_attempts[key] = attempt
        self._put(job._replace(attempts=key.number, live_attempt=key.number))
        return attempt

    # --- the stimuli ----------------------------------------------------------------------------

    def _SubmitJob(self, ask: say.SubmitJob) -> say.Submitted:
        job = Job(
            job_id=JobId(len(self.published.all_jobs) + 1),
            user=ask.caller.name,
            name=ask.name,
            request=ask.request,
            submit_time_s=self.clock.now_s(),
            state=JobState.QUEUED,
            time_limit_s=ask.time_limit_s,
            rules=ask.rules,
            duration_estimate_s=ask.run_estimate_s,
            steps=tuple(Step(one.after_s, one.reward) for one in ask.deadlines),
        )
        if not ask.validate_only:
            self.published.specs[job.job_id] = ask.spec
            self._put(job)
            self.note("job_submitted", job_id=job.job_id, actor=ask.caller.actor)
        return say.Submitted(job, (Reason(ReasonCode.NO_NODES, "nodes", 1, 0),))

    def _SubmitMany(self, ask: say.SubmitMany) -> tuple[JobId | DlqError, ...]:
        return tuple(self._SubmitJob(one).job.job_id for one in ask.asks)

    def _SubmitGroup(self, ask: say.SubmitGroup) -> SubmittedGroup:
        jobs = [self._SubmitJob(it.ask).job for it in ask.members for _ in range(it.jobs)]
        return SubmittedGroup(JobId(0), tuple(jobs))

    def _CancelJob(self, ask: say.CancelJob) -> Job:
        return self._edit(ask, state=JobState.CANCELLED)

    def _EditMany(self, ask: say.EditMany) -> say.ManyEdited:
        answers: dict[JobId, Job] = {}
        refusals: dict[JobId, DlqError] = {}
        for edit in ask.edits:
            if ask.living_only and self.published.all_jobs[edit.job_id].ended:
                continue
            try:
                answers[edit.job_id] = getattr(self, f"_{type(edit).__name__}")(edit)
            except DlqError as refusal:
                refusals[edit.job_id] = refusal
        return say.ManyEdited(answers, refusals)

    def _HoldJob(self, ask: say.HoldJob) -> Job:
        return self._edit(ask, state=JobState.HELD, hold=ask.kind, hold_reason=ask.reason)

    def _ReleaseJob(self, ask: say.ReleaseJob) -> Job:
        return self._edit(ask, state=JobState.QUEUED, hold=None)

    def _PauseJob(self, ask: say.PauseJob) -> Job:
        return self._edit(ask, state=JobState.HELD, hold=HoldKind.PAUSED)

    def _ResumeJob(self, ask: say.ResumeJob) -> Job:
        return self._edit(ask, state=JobState.QUEUED, hold=None)

    def _ExplainJob(self, ask: say.ExplainJob) -> say.Explained:
        reason = Reason(ReasonCode.RESOURCES, "gpus", 8, 2, (JobId(1),))
        return say.Explained(self.published.all_jobs[ask.job_id], (reason,), 4)

    def _AttendJob(self, ask: say.AttendJob) -> Job:
        return self.published.all_jobs[ask.job_id]

    def _OpenSession(self, ask: say.OpenSession) -> say.Opened:
        self._sessions += 1
        facts: dict[str, Any] = {
            "session_id": self._sessions,
            "epoch": EPOCH,
            "heartbeat_s": 5.0,
            "ttl_s": 20.0,
            "reconnect_jitter_s": 15.0,
            "launches": (),
            "stops": (),
            "acknowledged": max((report.sequence for report in ask.reports), default=0),
        }
        return say.Opened(**{**facts, **self.welcome})

    def _AnnounceMaintenance(self, ask: say.AnnounceMaintenance) -> say.Maintenance:
        node = self._node(ask.node_id)
        self.published.all_nodes[ask.node_id] = node._replace(
            maintenance_s=ask.maintenance_s, hold_revision=node.hold_revision + 1
        )
        return say.Maintenance(left_s=ask.maintenance_s, in_force=False, rank_count=0, hold_s=None)

    def _TakeEvidence(self, said: say.TakeEvidence) -> None:
        pass

    def _RankReports(self, ask: say.RankReports) -> int:
        return ask.reports[-1].sequence

    def _CreateToken(self, ask: say.CreateToken) -> JoinToken:
        token = JoinToken(
            ask.token_id,
            ask.node_id,
            ask.secret_hash,
            self.clock.now_s(),
            self.clock.now_s() + ask.lifetime_s,
            ask.caller.name,
        )
        self.published.all_tokens[token.token_id] = token
        return token

    def _RevokeToken(self, ask: say.RevokeToken) -> None:
        self.published.all_tokens.pop(ask.token_id, None)

    def _StepDown(self, ask: say.StepDown) -> int:
        if ask.found:
            raise IllegalTransition(f"this master goes on to lead: {ask.found}")
        return self.published.epoch

    def _RevokeCertificates(self, ask: say.RevokeCertificates) -> Revocation:
        now_s = self.clock.now_s()
        good_from_s = math.floor(now_s) + 1.0
        row = Revocation(ask.subject, now_s, good_from_s, ask.caller.name, ask.reason)
        self.published.all_revocations[row.subject] = row
        return row

    def _RevokeGrant(self, ask: say.RevokeGrant) -> say.GrantRevoked:
        raise NotFound(f"there is no grant {ask.serial}", kind="grant", id=ask.serial)

    def _UseToken(self, ask: say.UseToken) -> str:
        token = self.published.all_tokens.get(ask.token_id)
        if token is None or token.secret_hash != ask.secret_hash:
            raise Unauthenticated("the join token is unknown")
        if self.clock.now_s() >= token.expire_time_s:
            raise Unauthenticated("the join token has expired")
        if token.used_by_key not in ("", ask.key_fingerprint):
            raise Unauthenticated("the join token was used by another key")
        if token.node_id not in ("", ask.wished_node_id):
            raise Unauthenticated("the join token is for another node")
        used = replace(token, used_by_key=ask.key_fingerprint)
        self.published.all_tokens[token.token_id] = used
        self.add_node(ask.wished_node_id)
        return ask.wished_node_id

    def _FenceNode(self, ask: say.FenceNode) -> say.Fenced:
        node = self._node(ask.node_id)._replace(state=NodeState.DOWN)
        self.published.all_nodes[ask.node_id] = node
        return say.Fenced(node, ())

    def _SetNodeFlags(self, ask: say.SetNodeFlags) -> Node:
        nodes = [self._node(node_id) for node_id in (ask.node_id, *ask.more)]
        for node in nodes:
            flags = (node.flags | ask.set_flags) - ask.clear_flags
            self.published.all_nodes[node.node_id] = node._replace(flags=flags)
        return self._node(ask.node_id)

    def _SetNodeLabels(self, ask: say.SetNodeLabels) -> Node:
        node = self._node(ask.node_id)
        kept = {each for each in node.labels if each.split("=")[0] not in ask.clear_labels}
        node = node._replace(labels=frozenset(kept) | ask.set_labels)
        self.published.all_nodes[ask.node_id] = node
        return node

    def _AcceptGpus(self, ask: say.AcceptGpus) -> Node:
        node = self._node(ask.node_id)
        node = node._replace(accepted=frozenset(gpu.word for gpu in node.gpus))
        self.published.all_nodes[ask.node_id] = node
        return node

    def _ClearGpuConditions(self, ask: say.ClearGpuConditions) -> Node:
        node = step(self._node(ask.node_id), GpusCleared(indexes=ask.indexes), at_s=0.0)
        self.published.all_nodes[ask.node_id] = node
        return node

    def _ForgetNode(self, ask: say.ForgetNode) -> None:
        if self._node(ask.node_id).state is not NodeState.DOWN:
            raise IllegalTransition(f"node {ask.node_id} is up")
        del self.published.all_nodes[ask.node_id]

    def _SetUser(self, ask: say.SetUser) -> User:
        twin = [u for u in self.published.users() if u.uid == ask.uid and u.name != ask.name]
        if twin:
            raise AlreadyExists(f"user {twin[0].name} has uid {ask.uid} already")
        user = User(ask.name, ask.role, ask.uid, ask.gid, ask.groups, self.clock.now_s())
        self.published.all_users[ask.name] = user
        return user

    def _RefreshUser(self, ask: say.RefreshUser) -> User | None:
        user = self.published.user(ask.name)
        if user is None or user.uid != ask.uid:
            return None
        user = replace(user, gid=ask.gid, groups=ask.groups)
        self.published.all_users[ask.name] = user
        return user

    def _DeleteUser(self, ask: say.DeleteUser) -> say.UserDeleted:
        self.published.all_users.pop(ask.name, None)
        return say.UserDeleted()

    def _CreateReservation(self, ask: say.CreateReservation) -> Reservation:
        begin_s = 0.0 if ask.begin_s is None else ask.begin_s
        who = ask.caller.name
        made = Reservation("m1", ask.node_ids, begin_s, ask.end_s, ask.reason, who, 0.0)
        self.published.all_reservations["m1"] = made
        return made

    def _CancelReservation(self, ask: say.CancelReservation) -> None:
        self.published.all_reservations.pop(ask.reservation_id, None)

    def _AddNotifyRule(self, ask: say.AddNotifyRule) -> NotifyRule:
        made = NotifyRule(
            f"n{len(self.published.all_notify_rules) + 1}", ask.caller.name, ask.target,
            ask.address, ask.events, 0.0, ask.signing_key, ask.with_output, ask.quiet_hours,
            ask.time_zone, ask.gather_s,
        )  # fmt: skip
        self.published.all_notify_rules[made.rule_id] = made
        return made

    def _RemoveNotifyRule(self, ask: say.RemoveNotifyRule) -> None:
        if self.published.all_notify_rules.pop(ask.rule_id, None) is None:
            raise NotFound(f"there is no rule {ask.rule_id}")

    def _TestNotifyRule(self, ask: say.TestNotifyRule) -> None:
        if ask.rule_id not in self.published.all_notify_rules:
            raise NotFound(f"there is no rule {ask.rule_id}")

    def _SetTeam(self, ask: say.SetTeam) -> say.TeamSet:
        team = ask.team._replace(version=ask.team.version + 1)
        self.published.all_teams[team.name] = team
        return say.TeamSet(team, ())

    def _DeleteTeam(self, ask: say.DeleteTeam) -> int:
        self.published.all_teams.pop(ask.name, None)
        return 0

    def _SetPolicy(self, ask: say.SetPolicy) -> say.PolicySet:
        name, by = ("fifo", "") if ask.from_file else (ask.policy, ask.caller.name)
        self.published.chosen = Chosen(name, dict(ask.settings), by, self.published.clock.now_s())
        return say.PolicySet(self.published.chosen, ())

    # --- helpers --------------------------------------------------------------------------------

    def _edit(self, ask: say.JobEdit, **changes: Any) -> Job:
        job = self.published.all_jobs[ask.job_id]
        if ask.expected_version not in (0, job.version):
            raise Conflict(f"job {job.job_id} has changed", version=job.version)
        return self._put(job._replace(version=job.version + 1, **changes))

    def _put(self, job: Job) -> Job:
        self.published.all_jobs[job.job_id] = job
        return job

    def _node(self, node_id: NodeId) -> Node:
        node = self.published.node(node_id)
        if node is None:
            raise NotFound(f"there is no node {node_id}", kind="node", id=node_id)
        return node

    def _key(self, stimulus: Any) -> tuple[str, str] | None:
        request_id = getattr(stimulus, "request_id", "")
        return (stimulus.caller.name, request_id) if request_id else None

    def _notice(self) -> None:
        self.arrived.set()
