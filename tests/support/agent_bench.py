"""An agent's core on a bench: fake clock, host, line and errands, and a master that a test plays.

The host (its processes, the journal, the contact) outlives the agent: `restart` is a kill -9.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dlq_nodeagent.core import AgentCore, CoreSettings
from dlq_nodeagent.line.uplink import UplinkTransport
from dlq_nodeagent.model.errands import (
    Look,
    LookOrder,
    Move,
    MoveResult,
    Preparation,
    Purpose,
    ReadOrder,
    SeenCheckpoint,
)
from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.messages import (
    REPORTS_ANSWER,
    TAKES_STEPS,
    Command,
    CommandResult,
    Fence,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Launch,
    Order,
    Phase,
    ProfileAck,
    ProfileEvidence,
    ProfileFound,
    RankReport,
    ReportAck,
    StepsAck,
    StepsReport,
    Stop,
    Verdict,
    Welcome,
)
from dlq_nodeagent.model.port import Handle, NotDelivered, Runtime, StopNotice
from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime
from dlq_nodeagent.state.journal import Journal
from support.agent_fakes import FakeContact, FakeErrands, MemoryJournal
from support.fake_clock import FakeClock

EPOCH = 7
_M = TypeVar("_M")


def a_launch(
    job: int = 17,
    attempt: int = 1,
    rank: int = 0,
    *,
    epoch: int = EPOCH,
    does: str = "run_for=1000",
    **changes: Any,
) -> Launch:
    """One rank on one GPU that runs `does` (knobs of the fake runtime)."""
    launch = Launch(
        key=RankKey(str(job), attempt, rank),
        fence=Fence(epoch, attempt),
        command=("fake", *does.split()),
        gpu_indexes=(0,),
        checkpoint_directory=f"/ckpt/{job}/{attempt}",
    )
    return replace(launch, **changes)


def a_stop(launch: Launch, cause: str = "preempt", grace_s: float = 60.0, **changes: Any) -> Stop:
    """A stop of that rank."""
    stop = Stop(key=launch.key, fence=launch.fence, cause=cause, grace_s=grace_s)
    return replace(stop, **changes)


@dataclass
class FakeTransport:
    """A line that a test opens and cuts."""

    opens: int = 0
    closes: int = 0
    sent: list[FromAgent] = field(default_factory=list)

    def open(self) -> None:
        self.opens += 1

    def send(self, message: FromAgent) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.closes += 1


class HostContact(FakeContact):
    """Fake jobs read the contact from their host."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__()
        self._host = host

    def renew(self, boottime_s: float) -> None:
        super().renew(boottime_s)
        self._host.renew_contact()


class ListeningRuntime(FakeRuntime):
    """Remembers on the bench which signals stops carried; deaf shims take no stop."""

    def __init__(self, host: FakeHost, bench: "AgentBench") -> None:
        super().__init__(host)
        self._bench = bench

    def start(self, plan: LaunchPlan) -> Handle:
        handle = super().start(plan)
        self._bench.starts.append(plan.key)
        return handle

    def stop(
        self, handle: Handle, *, epoch: int, signal: int, grace_s: float, term_s: float
    ) -> None:
        if self._bench.deaf:
            raise NotDelivered("the shim's channel is full")
        self._bench.signals.append(signal)
        super().stop(handle, epoch=epoch, signal=signal, grace_s=grace_s, term_s=term_s)

    def signal(self, handle: Handle, number: int, *, epoch: int) -> None:
        if self._bench.deaf:
            raise NotDelivered("the shim's channel is full")
        self._bench.sent.append(number)
        super().signal(handle, number, epoch=epoch)

    def extend_hold(self, handle: Handle, *, epoch: int, hold_s: float) -> None:
        if self._bench.deaf:
            raise NotDelivered("the shim's channel is full")
        super().extend_hold(handle, epoch=epoch, hold_s=hold_s)


class AgentBench:
    """One node with its agent; `self.prepare` and `self.look` say how errands end."""

    def __init__(self, *, seed: int = 1, clock: FakeClock | None = None, **settings: Any) -> None:
        self.clock = clock or FakeClock()
        self.host = FakeHost(self.clock)
        self.contact = HostContact(self.host)
        self.journal = MemoryJournal()
        self.settings = CoreSettings(**settings)
        self.rng = random.Random(seed)
        self.prepare: Callable[[Launch], Preparation | None] = a_preparation
        self.checkpoint: SeenCheckpoint | None = None
        self.released: bool | None = True
        self.move: Callable[[Move], MoveResult | None] = made  # None: it is still under way
        self.answers_looks = True
        self.hangs_on: Purpose | None = None  # looks of this purpose never come back
        self.answers_heartbeats = True
        self.acks = True
        self.acks_profiles = True
        self.acks_steps = self.takes_steps = True
        self.reports_answer = False  # as a master before it took reports for answers
        self.database: dict[str, Any] = {}  # what the master says of it in its welcome
        self.reads_profiles = True  # False: whoever reads rings hangs
        self.profiles: list[ReadOrder] = []  # all that were read
        self.signals: list[int] = []
        self.sent: list[int] = []  # signals to ranks that go on
        self.starts: list[RankKey] = []
        self.deaf = False
        self.hold_extension_s = 0.0
        self.hold_revision = 0
        self._sequence = 0
        self._start()

    def _start(self) -> None:
        self.transport = FakeTransport()
        self.errands = FakeErrands()
        self.runtime = ListeningRuntime(self.host, self)
        self.core = self._core(self.runtime, self.transport, self.journal)
        self.core.start()

    def _core(self, runtime: Runtime, transport: UplinkTransport, journal: Journal) -> AgentCore:
        return AgentCore(
            clock=self.clock,
            runtime=runtime,
            transport=transport,
            journal=journal,
            contact=self.contact,
            errands=self.errands,
            rng=self.rng,
            boot_id="fake",
            settings=self.settings,
        )

    def restart(self, *, down_s: float = 0.0) -> None:
        """kill -9, some time without an agent, and a new one on the same host."""
        self.clock.advance(down_s)
        self._start()

    # ---- the master's part

    def connect(self, *wanted: Launch, epoch: int = EPOCH, stops: tuple[Stop, ...] = ()) -> Hello:
        """Let the agent dial, take its Hello, welcome it."""
        hello = self.greet()
        self.core.received(
            Welcome(
                epoch=epoch,
                heartbeat_s=5.0,
                ttl_s=20.0,
                reconnect_jitter_s=15.0,
                wanted=wanted,
                stops=stops,
                hold_extension_s=self.hold_extension_s,
                hold_revision=self.hold_revision,
                features=self._features(),
                **self.database,
            )
        )
        self.settle()
        return hello

    def _features(self) -> tuple[str, ...]:
        words = {TAKES_STEPS: self.takes_steps, REPORTS_ANSWER: self.reports_answer}
        return tuple(word for word, has in words.items() if has)

    def greet(self) -> Hello:
        """Let the agent dial, and take its Hello."""
        opens = self.transport.opens
        while self.transport.opens == opens:
            self.core.tick()
            if self.transport.opens == opens:
                self.clock.advance(self.core.pause_s() or 0.001)
        self.core.opened()
        return self.said(Hello)[-1]

    def cut(self) -> None:
        """The line breaks, and both sides see it."""
        self.core.closed()

    def order(self, order: Order, *, epoch: int = EPOCH) -> CommandResult:
        """Send a command; its result."""
        sequence = self.command(order, epoch=epoch)
        return next(it for it in self.said(CommandResult) if it.sequence == sequence)

    def command(self, order: Order, *, epoch: int = EPOCH) -> int:
        """Send a command; its number."""
        self._sequence += 1
        self.core.received(Command(sequence=self._sequence, epoch=epoch, order=order))
        self.settle()
        return self._sequence

    def run(self, seconds: float, *, step_s: float = 0.25) -> None:
        """Let time pass in small steps, with everybody doing their part."""
        for _ in range(round(seconds / step_s)):
            self.clock.advance(step_s)
            self.core.tick()
            self.settle()

    def settle(self) -> None:
        """Answer what the agent asks until it asks nothing more."""
        for _ in range(20):
            if not (self._answer_errands() or self._answer_messages()):
                return
        raise AssertionError("the agent never stops asking")

    # ---- what a test looks at

    def said(self, kind: type[_M]) -> list[_M]:
        """All messages of one kind in this agent's life, in order."""
        return [message for message in self.transport.sent if isinstance(message, kind)]

    def reports(self, launch: Launch) -> list[RankReport]:
        """All reports about one rank, in order; those of Hello included."""
        found: list[RankReport] = []
        for message in self.transport.sent:
            if isinstance(message, Hello):
                found += [report for report in message.ranks if report.key == launch.key]
            elif isinstance(message, RankReport) and message.key == launch.key:
                found.append(message)
        return found

    def phases(self, launch: Launch) -> list[Phase]:
        """The phases reported of one rank, repeats left out."""
        phases: list[Phase] = []
        for report in self.reports(launch):
            if not phases or phases[-1] is not report.phase:
                phases.append(report.phase)
        return phases

    def last(self, launch: Launch) -> RankReport:
        """The latest report about one rank."""
        return self.reports(launch)[-1]

    def notice(self, launch: Launch) -> StopNotice | None:
        """What the job reads in its notice file."""
        return self.runtime.notice_of(Handle(launch.key, launch.fence.epoch))

    def save_number(self, launch: Launch) -> int:
        """The request to save that the job reads in its save file."""
        return self.runtime.save_number_of(Handle(launch.key, launch.fence.epoch))

    def runs(self, launch: Launch) -> bool:
        """Whether a process of this rank lives on the host."""
        self.host.settle()
        attempt = self.host.attempts.get(launch.key)
        return attempt is not None and attempt.record is None

    def commit(self, step: int) -> None:
        """The job commits a checkpoint now; the next look sees it."""
        self.checkpoint = SeenCheckpoint(
            path=f"/ckpt/step-{step:06d}",
            step=step,
            mtime_ns=round(self.clock.now_s() * 1e9),
            age_s=0.0,
            evidence="marker",
        )

    # ---- inside

    def _answer_errands(self) -> bool:
        self.core.speak()  # the shell ticks after each message and event
        orders, self.errands.prepares = self.errands.prepares, []
        for order in orders:
            preparation = self.prepare(order.launch)
            if preparation is None:
                self.errands.prepares.append(order)
            else:
                self.core.prepared(order.launch.key, preparation)
        looks = self.errands.take_looks() if self.answers_looks else []
        for look in looks:
            if look.purpose is self.hangs_on:
                continue
            asked = look.purpose is Purpose.RELEASE
            released = self.is_released(look) if asked else None
            held_by = "GPU-0: 9 bytes used" if asked and not released else ""
            seen = Look(checkpoint=self._seen(), released=released, held_by=held_by)
            self.core.looked(look.launch.key, look.purpose, seen)
        reads = []
        if self.reads_profiles:
            reads, self.errands.reads = self.errands.reads, []
        for read in reads:
            self.profiles.append(read)
            self.core.profile_read(read.launch.key, a_found(read, self.clock.now_s()))
        moves, self.errands.moves = self.errands.moves, []
        for move in moves:
            result = self.move(move)
            if result is None:
                self.errands.moves.append(move)
            else:
                self.core.moved(move.launch.key, result)
        moved = len(self.errands.moves) < len(moves)
        return bool(looks or reads or moved) or len(self.errands.prepares) < len(orders)

    def is_released(self, look: LookOrder) -> bool | None:
        """Whether the GPUs of a rank are free, as its node sees it."""
        return self.released

    def _seen(self) -> SeenCheckpoint | None:
        if self.checkpoint is None:
            return None
        age_s = self.clock.now_s() - self.checkpoint.mtime_ns / 1e9
        return replace(self.checkpoint, age_s=max(0.0, age_s))

    def _answer_messages(self) -> bool:
        self.core.speak()
        fresh = self.transport.sent[self._heard() :]
        self.transport.__dict__["heard"] = len(self.transport.sent)
        answered = False
        for message in fresh:
            if isinstance(message, Heartbeat) and self.answers_heartbeats:
                reply = HeartbeatReply(message.sequence, self.hold_extension_s, self.hold_revision)
                self.core.received(reply)
                answered = True
        reported = [m.sequence for m in fresh if isinstance(m, RankReport)]
        reported += [r.sequence for m in fresh if isinstance(m, Hello) for r in m.ranks]
        if reported and self.acks and self.core.uplink.up:
            self.core.received(ReportAck(max(reported)))
            answered = True
        for message in fresh:
            if isinstance(message, ProfileEvidence) and self.acks_profiles:
                self.core.received(ProfileAck(message.key, message.fence))
                answered = True
            if isinstance(message, StepsReport) and self.acks_steps:
                self.core.received(StepsAck(message.key, message.fence, message.number))
                answered = True
        return answered

    def _heard(self) -> int:
        return int(self.transport.__dict__.get("heard", 0))


def a_preparation(launch: Launch) -> Preparation:
    """A plan as the workshop would make it."""
    plan = LaunchPlan(
        job_id=launch.key.job_id,
        attempt=launch.key.attempt,
        epoch=launch.fence.epoch,
        node_rank=launch.key.node_rank,
        argv=launch.command,
        uid=1000,
        gid=1000,
        hold_s=launch.hold_s,
        grace_s=launch.grace_s,
        signal=10,
    )
    return Preparation(plan=plan)


def made(move: Move) -> MoveResult:
    """A move that succeeds."""
    if move.out:
        move.still.freeze()
    else:
        move.still.thaw()
    return MoveResult(nbytes=2 << 30 if move.out else 0, took_s=0.5)


def a_found(order: ReadOrder, now_s: float) -> ProfileFound:
    """What a rank's traffic might have told."""
    known = Verdict("address-recurrence", "checked")
    return ProfileFound(
        ended_s=now_s,
        window_s=order.window_s,
        gpu_type="H100-80GB",
        gpu_count=len(order.launch.gpu_indexes),
        node_count=1,
        traffic=known,
        sizes=known,
        bytes_per_iteration=1e6,
        period_s=0.5,
    )
