"""A whole master on real ports whose clock moves from event to event, and a world of virtual jobs
on it.

The master is the daemon's own: loop, sessions, services, mutual TLS. Only its clock stands still
until everything that one instant has brought is on its disk: then it jumps to the next event, of
the world or of the loop. So a day takes seconds, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from grpc import aio, ssl_channel_credentials

from dlq.v1 import agent_service_pb2, job_service_pb2
from dlq.v1.agent_service_pb2 import RankProgress
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import MasterConfig
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.meter import Meter
from dlq_master.control.stimuli import (
    Heartbeat,
    PlanMade,
    RankReports,
    Stimulus,
    SubmitJob,
    Tick,
)
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import Steps
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.planner.process import PlannerProcess
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.server import MasterServer, ServerSettings
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.fake_clock import FakeClock, SeededIds
from support.fake_foresight import FakeForesight
from support.inline_planner import InlinePlanner
from support.kept_steps import KeptSteps
from support.memory_store import MemoryStore
from support.virtual_agent import VirtualAgent

GRID_S = 86_400.0  # the clock starts on a boundary of every grid of terms
PATIENCE_S = 60.0  # of real time, for one instant
NEVER_S = 1e9  # no metronome: the loop is woken when it wants to be


class VirtualJob(NamedTuple):
    """What arrives when, how long it works on its GPUs, and what its end is worth by when;
    `told_s`: how long its user says that it works (0: nothing), if that is not the truth. `sizes`:
    of an elastic job, which is as fast as it has GPUs."""

    name: str
    submit_s: float
    gpus: int
    work_s: float
    steps: Steps = ()
    told_s: float | None = None
    sizes: tuple[int, ...] = ()


@dataclass(slots=True)
class Work:
    """How far a job is."""

    job: VirtualJob
    done_s: float = 0.0
    begun: bool = False
    attempt: int = 0  # the one that makes progress; 0: none does
    from_s: float = 0.0
    rate: float = 1.0  # of the GPUs that it has
    ranks: dict[int, VirtualAgent] = field(default_factory=dict)
    starting: int = 0

    @property
    def finish_s(self) -> float:
        left_s = self.job.work_s - self.done_s
        return self.from_s + (left_s if self.rate == 1.0 else left_s / self.rate)


class Run(NamedTuple):
    """One attempt as the master has it on disk; instants from the first one of the clock."""

    job: str
    number: int
    gpus: tuple[tuple[str, int], ...]
    begin_s: float
    end_s: float
    how: str


class SteppedDaemon:
    """`nodes`: GPUs of each node by its id. `save_s`, `resume_s`: what a pause costs. `pools`:
    whose a node is that is not the cluster's own."""

    def __init__(
        self,
        root: Path,
        config: MasterConfig,
        nodes: Mapping[str, int],
        *,
        save_s: float = 30.0,
        resume_s: float = 30.0,
        pools: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.clock = FakeClock(now_s=time() // GRID_S * GRID_S)
        self.begin_s = self.clock.now_s()
        self.store = MemoryStore()
        alice = User("alice", "user", 1001, 1001, (), 0.0)
        known = [Node(NodeId(name), (), state=NodeState.DOWN) for name in nodes]  # they have joined
        self.store.write(Batch(changes=put(USERS, [alice]), nodes=known, meta={"epoch": "0"}))
        self.state, first = start(config, self.store.load(), self.begin_s)
        self.store.write(first)
        self.sessions = Sessions(CheckpointPlaces("/checkpoints", b"seed"))
        self.sessions.ack_pause_s = 0.0  # each instant waits until all is acknowledged
        self.loop = Loop(
            state=self.state,
            wiring=WIRING,
            clock=self.clock,
            store=self.store,
            records=self.store,
            transport=self.sessions,
            failpoints=Failpoints(),
            state_dir=root,
            periods_s={"leases": NEVER_S},
        )
        self.planner = PlannerProcess(
            lambda answer: self.loop.tell(PlanMade(answer)), limit_s=PATIENCE_S
        )
        # Plans instead of a process, if it is there, and answers at the instant at which it is
        # asked.
        self._inline: InlinePlanner | None = None
        self._save_s, self._resume_s = save_s, resume_s
        self._nodes, self._pools = nodes, pools
        self._authority = Authority.create("lab", self.begin_s)
        self._audit = Audit(root / "audit.jsonl", self.clock)
        self._server = MasterServer(
            ServerSettings(api_address="127.0.0.1:0", join_address="127.0.0.1:0", version="1"),
            control=self.loop,
            sessions=self.sessions,
            authority=self._authority,
            audit=self._audit,
            clock=self.clock,
            ids=SeededIds(7),
            foresight=FakeForesight(),
            steps=KeptSteps().store,
            meter=Meter(),
        )
        self._channels: list[aio.Channel] = []
        self._lines: dict[str, aio.Channel] = {}  # of each node
        self._agents: dict[str, VirtualAgent] = {}
        self._calls: set[asyncio.Task[Any]] = set()
        self._works: dict[str, Work] = {}
        self._agenda: list[tuple[float, int, str, str, int]] = []
        self._foreseen = 0

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._server.start()
        self.state.placement.offloaded.planner = self._inline or self.planner
        for node_id, gpus in self._nodes.items():
            channel = self._lines[node_id] = self._channel(node_id, node=True)
            told = (self._begun_on(node_id), self._stopped)
            pool = self._pools.get(node_id, "")
            self._agents[node_id] = VirtualAgent(channel, node_id, gpus, *told, pool=pool)
            await self._agents[node_id].join()
            await self._until(lambda: len(self.loop._inbox) > 0)
            await self._turn()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(agent.close() for agent in self._agents.values()))
        await asyncio.gather(*(channel.close() for channel in self._channels))
        await self.planner.close()
        await self._server.stop(0.0)
        self._audit.close()

    def _channel(self, name: str, *, node: bool = False) -> aio.Channel:
        made, now_s = new_key_and_csr(name), self.begin_s
        authority = self._authority
        if node:
            certificate = authority.sign_node(made.request, name, now_s)
        else:
            certificate = authority.sign_user(made.request, name, Role.USER, now_s)
        credentials = ssl_channel_credentials(authority.certificate_pem(), made.key, certificate)
        options = [("grpc.ssl_target_name_override", SERVER_NAME)]
        address = f"127.0.0.1:{self._server.api_port}"
        self._channels.append(aio.secure_channel(address, credentials, options=options))
        return self._channels[-1]

    # --- a replay -----------------------------------------------------------------------------

    async def replay(self, jobs: Sequence[VirtualJob]) -> list[Run]:
        """All jobs from their arrival to their end."""
        submit = JobServiceStub(self._channel("alice"))
        waiting = {job.name: job for job in jobs}
        for job in jobs:
            self._foresee(self.begin_s + job.submit_s, "arrive", job.name, 0)
        while self._agenda or any(not job.ended for job in self.loop.published.jobs()):
            self._step(self._next_s())
            while self._agenda and self._agenda[0][0] <= self.clock.now_s():
                _, _, what, name, number = heappop(self._agenda)
                if what == "arrive":
                    call = self._submit(submit, waiting[name])
                    self._calls.add(asyncio.create_task(call))
                else:
                    await self._happens(what, name, number)
            await self._until(self._arrived)
            await self._turn()
            await self._settle()
            self._settled()
        return self._runs()

    async def _happens(self, what: str, name: str, number: int) -> None:
        """Something that was foreseen."""
        self._ends(what, name, number)

    def _settled(self) -> None:
        """All that this instant has brought is on disk."""

    def _next_s(self) -> float:
        ahead = [self._agenda[0][0]] if self._agenda else []
        wake_s = self.loop._wake_at_s
        ahead += [] if wake_s is None else [wake_s]
        assert ahead, f"nothing will ever happen, and there are {self._left()}"
        return min(ahead)

    def _left(self) -> list[tuple[Job, Attempt | None]]:
        """Jobs that have not ended, and what they run as."""
        cluster = self.state.cluster
        left = [job for job in cluster.jobs.values() if not job.ended]
        return [(job, cluster.live_attempt(job)) for job in left]

    def _step(self, to_s: float) -> None:
        self.clock.advance(max(0.0, to_s - self.clock.now_s()))
        # Sums of floats may stop short of what they were to reach.
        while self.clock.now_s() < to_s:
            self.clock.advance(1e-6)

    async def _submit(self, stub: Any, job: VirtualJob) -> None:
        request = job_service_pb2.SubmitJobRequest(request_id=f"submit-{job.name}")
        spec = request.spec
        spec.name, spec.working_directory = job.name, "/tmp"
        spec.command.append("/bin/true")
        spec.resources.gpu_count = job.gpus
        spec.elastic.gpu_counts.extend(job.sizes)
        if not job.sizes:
            spec.ClearField("elastic")
        told_s = job.work_s if job.told_s is None else job.told_s
        if told_s:
            spec.run_estimate_duration.FromNanoseconds(round(told_s * 1e9))
        for step in job.steps:
            due = spec.deadlines.add(reward=step.reward).due_duration
            due.FromNanoseconds(round(step.deadline_s * 1e9))
        self._works[job.name] = Work(job)
        await stub.SubmitJob(request, timeout=PATIENCE_S)

    def _work(self, job_id: str) -> Work:
        job = self.loop.published.job(JobId(int(job_id)))
        assert job is not None
        return self._works[job.name]

    def _arrived(self) -> bool:
        """Who has something to say at this instant is being heard: a session hands over one report,
        and then all that came while that one was taken."""
        letters = [letter.stimulus for letter in self.loop._inbox._envelopes]
        speaking = {one.node_id for one in letters if isinstance(one, RankReports)}
        asked = sum(isinstance(one, SubmitJob) for one in letters)
        heard = all(agent.heard or name in speaking for name, agent in self._agents.items())
        return heard and asked >= len(self._calls)

    async def _settle(self) -> None:
        """Until nothing is on its way any more."""
        while True:
            if self._inline is not None and self._inline.asked:
                self.loop.tell(PlanMade(self._inline.answer()))
            if len(self.loop._inbox):
                await self._turn()
            elif self._quiet():
                return
            else:
                await self._until(lambda: bool(len(self.loop._inbox)) or self._quiet())

    def _quiet(self) -> bool:
        self._calls = {call for call in self._calls if not call.done()}
        state = self.state
        return (
            not state.attempts.outbox
            and not self._calls
            and state.placement.offloaded.asked is None
            and all(agent.heard for agent in self._agents.values())
        )

    async def _turn(self) -> None:
        """One turn with all that has arrived, in the order of the jobs."""
        letters = self.loop._inbox.take()
        await self.loop.turn(sorted(letters, key=lambda letter: _place(letter.stimulus)))

    async def _look_at_time(
        self, said: Mapping[VirtualAgent, Sequence[RankProgress]] = MappingProxyType({})
    ) -> None:
        """All nodes are heard of, with what their ranks say, and the master looks at the time."""
        for node_id, agent in self._agents.items():
            agent.beat(*said.get(agent, ()))
            await self._until(lambda node=node_id: self._hears(node))
        await self._turn()
        self.loop.tell(Tick("leases"))
        await self._turn()

    def _hears(self, node_id: str) -> bool:
        letters = [letter.stimulus for letter in self.loop._inbox._envelopes]
        return any(isinstance(one, Heartbeat) and one.node_id == node_id for one in letters)

    async def _until(self, true: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not true():  # noqa: ASYNC110 nobody tells when all of it is true
                    await asyncio.sleep(0.0005)
        except TimeoutError:
            silent = [(name, one.faults) for name, one in self._agents.items() if not one.heard]
            outbox, asked = dict(self.state.attempts.outbox), self.state.placement.offloaded.asked
            raise AssertionError(
                f"unheard {silent}, not taken {outbox}, {len(self._calls)} calls, asked {asked}"
            ) from None

    # --- the world ----------------------------------------------------------------------------

    def _foresee(self, at_s: float, what: str, name: str, number: int) -> None:
        self._foreseen += 1
        heappush(self._agenda, (at_s, self._foreseen, what, name, number))

    def _begun_on(self, node_id: str) -> Any:
        def begun(job_id: str, number: int, rank: int) -> None:
            work = self._work(job_id)
            if work.attempt != number:
                work.attempt, work.ranks, work.starting = number, {}, 0
            work.ranks[rank] = self._agents[node_id]
            key = self.state.cluster.jobs[JobId(int(job_id))].live_key
            assert key is not None
            attempt = self.state.cluster.attempts[key]
            if len(work.ranks) == len(attempt.ranks):
                work.rate = (
                    attempt.lease.allocation.width / work.job.gpus if work.job.sizes else 1.0
                )
                now_s = self.clock.now_s()
                work.from_s = now_s + (self._resume_s if work.begun else 0.0)
                work.begun = True
                self._foresee(work.finish_s, "finish", job_id, number)

        return begun

    def _stopped(self, job_id: str, number: int, rank: int) -> None:
        work = self._work(job_id)
        if rank or work.attempt != number or work.finish_s <= self.clock.now_s():
            return  # who is done before it has to save is left alone
        work.done_s += max(0.0, self.clock.now_s() - work.from_s) * work.rate
        work.attempt = 0
        self._foresee(self.clock.now_s() + self._save_s, "leave", job_id, number)

    def _ends(self, what: str, job_id: str, number: int) -> None:
        """All ranks of an attempt end."""
        work = self._work(job_id)
        if what == "finish" and work.attempt != number:
            return  # it was stopped before
        more: dict[str, Any] = {"exit_code": 0}
        if what == "leave":
            path = f"/checkpoints/{job_id}/{number}"
            saved = agent_service_pb2.CheckpointFact(path=path, after_notice=True)
            more = {"exit_code": 99, "checkpoint": saved, "noticed": "stop"}
        for rank, agent in work.ranks.items():
            agent.report(job_id, number, rank, agent_service_pb2.RANK_PHASE_EXITED, **more)
        work.attempt = 0

    def _runs(self) -> list[Run]:
        found = []
        for job in self.loop.published.jobs():
            found += [self._run(job, attempt) for attempt in self.store.attempts(job.job_id)]
        return found

    def _run(self, job: Job, attempt: Attempt) -> Run:
        assert attempt.ended_time_s is not None
        slots = tuple([(str(slot.node_id), slot.mask) for slot in attempt.lease.allocation.slots])
        begin_s = attempt.assigned_time_s - self.begin_s
        end_s = attempt.ended_time_s - self.begin_s
        number = attempt.key.number
        return Run(job.name, number, slots, begin_s, end_s, attempt.state.value)


def _place(stimulus: Stimulus) -> tuple[int, str]:
    if isinstance(stimulus, SubmitJob):
        return 0, stimulus.name
    if isinstance(stimulus, RankReports):
        return 1, f"{min(report.key.job_id for report in stimulus.reports):09d}"
    return 2, ""
