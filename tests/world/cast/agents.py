"""A node's agent: the real core in the daemon's rhythm, on a host of the world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.resource_pb2 import Gpu
from dlq_nodeagent.core import AgentCore, CoreSettings
from dlq_nodeagent.line import wire as agent_wire
from dlq_nodeagent.model.errands import (
    Look,
    LookOrder,
    Move,
    MoveResult,
    Preparation,
    PrepareOrder,
    Purpose,
    ReadOrder,
    SeenCheckpoint,
)
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    Command,
    CommandResult,
    FromAgent,
    GpuLook,
    Launch,
    OpenExec,
    OpenLog,
    OpenSamples,
    Phase,
    RankReport,
    Welcome,
)
from dlq_nodeagent.model.port import Handle
from support.agent_bench import a_found, a_preparation
from world.cast.hosts import HostAttempt, HostContact, HostJournal, HostRuntime, Killed, NodeHost
from world.stage.lines import AgentStream, Link
from world.stage.virtual_loop import Process

if TYPE_CHECKING:
    from world.cast.masters import Master
    from world.cast.world import World

PORT = 29_777
_TAKEN = frozenset({Phase.STARTED, Phase.STOPPING, Phase.EXITED})
DIAL_S = 10.0
PREPARE_S = (0.05, 0.2, 1.0, 6.0)
HUNG_S = (15.0, 60.0, 110.0)  # a file system that hangs
LOOK_S = (0.01, 0.1, 0.6)


class Node:
    """One host with its agent. A killed agent is started again after a moment."""

    def __init__(self, world: World, host: NodeHost, links: dict[str, Link]) -> None:
        self.world = world
        self.host = host
        self.name = host.name
        self.links = links  # by master
        self.draws = world.tape.stream(f"node {host.name}")
        judge = world.judge
        self.contact = HostContact(host, lambda at_s: judge.contacted(self, at_s))
        self.journal = HostJournal(self._touch, self.draws, self._kept)
        self.fuse = 0  # the agent dies at so many touches of its host from now
        self.highest_epoch = 0  # that any agent of this node has ever been welcomed by
        self.process: Process | None = None
        self.core: AgentCore | None = None
        self.wake = asyncio.Event()
        self.starts = 0
        self._line: Line | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.alive

    def facts(self) -> wire.NodeFacts:
        gpus = [
            Gpu(index=at, gpu_type="h100", uuid=f"{self.name}-{at}") for at in range(self.host.gpus)
        ]
        return wire.NodeFacts(
            hostname=self.name, address="10.0.0.1", boot_id=self.host.boot_id, gpus=gpus
        )

    # --- life -----------------------------------------------------------------------------------

    def boot(self) -> None:
        """A new agent over what its host and its disk have."""
        self.starts += 1
        self.process = Process(f"{self.name}#{self.starts}", self.world.loop)
        self.process.burnt = self._burnt
        self.process.spawn(self._live(self.process))

    def crash(self, why: str = "is killed", *, silently: bool = False) -> None:
        """kill -9 of the agent. Its jobs go on. `silently`: its host tells nobody."""
        if self.process is None or not self.process.alive:
            return
        self.process.kill()
        self.fuse = 0
        self.world.say(f"agent {self.name} {why}")
        if self._line is not None and not silently:
            self._line.cut_off()
        self._line = None
        self.world.later(self.world.restart_s(), self.boot)

    def _burnt(self) -> None:
        self.world.seen("an agent was killed at an await")
        self.crash("is killed between two steps")

    def power_cut(self) -> None:
        """The host is gone, and comes back with another boot."""
        self.crash("loses its power", silently=True)
        self.host.power_cut()
        self.journal.power_cut()

    def _kept(self, key: RankKey) -> None:
        self.world.judge.let_go(self, key)

    def _starts(self, key: RankKey) -> None:
        self.world.judge.starts(self, key)

    def _touch(self) -> None:
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                self.crash("is killed in the middle of an act")
                raise Killed

    async def _live(self, process: Process) -> None:
        runtime = HostRuntime(self.host, self._touch, self._starts)
        self._line = line = Line(self, process)
        errands = Errands(self, process)
        self.wake = wake = asyncio.Event()
        seed = self.draws.below(1_000_000)
        try:
            self.core = core = AgentCore(
                clock=self.host.host_clock,
                runtime=runtime,
                transport=line,
                journal=self.journal,
                contact=self.contact,
                errands=errands,
                rng=random.Random(seed),
                boot_id=self.host.boot_id,
                settings=CoreSettings(),
            )
            errands.core = line.core = core
            core.start()
            loop = self.world.loop
            while True:
                core.tick()
                alarm = loop.call_later(max(core.pause_s(), 0.05), wake.set)
                await wake.wait()
                alarm.cancel()
                wake.clear()
        except Killed:
            return


class Line:
    """The agent's `UplinkTransport`: one stream at a time."""

    def __init__(self, node: Node, process: Process) -> None:
        self._node, self._process = node, process
        self.core: AgentCore | None = None
        self._dial = 0
        self._stream: AgentStream | None = None
        self._stale: set[int] = set()  # commands that must be refused
        self._launches: dict[int, RankKey] = {}  # by the number of their command

    def open(self) -> None:
        self.close()
        self._dial += 1
        name = self._node.world.next_master(self._node.name)
        self._process.later(
            self._node.draws.spread(0.001, 0.05), self._connect, self._dial, name, DIAL_S
        )

    def _connect(self, dial: int, name: str, left_s: float) -> None:
        """Ask for a stream until somebody answers, or the time for it is over."""
        if dial != self._dial:
            return
        node = self._node
        master, link = node.world.masters[name], node.links[name]
        if link.cut or not master.serving or master.process is None or master.process.stopped:
            if left_s <= 0:
                node.world.turn_away(node.name, name)
                self._closed()
            else:
                self._process.later(1.0, self._connect, dial, name, left_s - 1.0)
            return
        self._stream = stream = AgentStream(link, self._process, master.process)
        stream.down.take = lambda data: self._heard(stream, data)
        node.world.loop.call_soon(
            self._accepted, master, stream, node.name, context=master.process.context
        )
        assert self.core is not None
        self.core.opened()
        node.wake.set()

    @staticmethod
    def _accepted(master: Master, stream: AgentStream, node: str) -> None:
        if master.loop is not None:
            master.accept(stream, node)

    def send(self, message: FromAgent) -> None:
        if self._stream is None:
            return
        node = self._node
        node.journal.touch()
        if isinstance(message, CommandResult):
            self._judge(message)
        elif isinstance(message, RankReport) and message.phase in _TAKEN:
            self._judge_report(message)
        self._stream.up.send(agent_wire.encode(message, node.facts()).SerializeToString())

    def _judge_report(self, report: RankReport) -> None:
        """It is the answer to launches of its rank."""
        answered = [number for number, key in self._launches.items() if key == report.key]
        for number in answered:
            self._node.world.judge.taken(self._node, self._launches.pop(number))

    def _judge(self, result: CommandResult) -> None:
        """What it says of a command."""
        node, launched = self._node, self._launches.pop(result.sequence, None)
        if launched is not None and not result.refusal:
            node.world.judge.taken(node, launched)
        if result.sequence not in self._stale:
            return
        self._stale.discard(result.sequence)
        if not result.refusal:
            node.world.judge.broken(
                f"I12: the agent of {node.name} obeyed command {result.sequence} of an epoch "
                f"before {node.highest_epoch}"
            )
        else:
            node.world.seen("an agent refused a stale epoch")

    def close(self) -> None:
        self._dial += 1
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.ended_by_agent()

    def cut_off(self) -> None:
        """The agent is dead: its host closes the stream."""
        if self._stream is not None:
            self._stream.ended_by_agent()

    def _closed(self) -> None:
        self._stream = None
        assert self.core is not None
        self.core.closed()
        self._node.wake.set()

    def _heard(self, stream: AgentStream, data: bytes | None) -> None:
        if stream is not self._stream:
            return
        if data is None:
            self._closed()
            return
        message = agent_wire.decode(wire.SessionResponse.FromString(data))
        assert message is not None
        assert self.core is not None
        node = self._node
        if isinstance(message, Command):
            if message.epoch < node.highest_epoch:
                self._stale.add(message.sequence)
            if isinstance(message.order, Launch):
                self._launches[message.sequence] = message.order.key
        try:
            self.core.received(message)
        except Killed:
            return
        if isinstance(message, Welcome) and self.core.uplink.up:
            if message.epoch < node.highest_epoch:
                node.world.judge.broken(
                    f"I12: {node.name} follows epoch {message.epoch} after {node.highest_epoch}"
                )
            node.highest_epoch = max(node.highest_epoch, message.epoch)
            node.world.judge.welcomed(node)
        node.wake.set()


class Errands:
    """Slow things beside the core: each answer comes after a moment."""

    def __init__(self, node: Node, process: Process) -> None:
        self._node, self._process = node, process
        self.core: AgentCore | None = None

    def _answer(self, delay_s: float, what: str, *given: object) -> None:
        self._process.later(delay_s, self._give, what, given)

    def _give(self, what: str, given: tuple[object, ...]) -> None:
        try:
            getattr(self.core, what)(*given)
        except Killed:
            return
        self._node.wake.set()

    def move(self, order: Move) -> None:
        self._answer(1.0, "moved", order.launch.key, MoveResult(refusal="off"))

    def prepare(self, order: PrepareOrder) -> None:
        launch = order.launch
        made = a_preparation(launch)
        self._node.host.gpus_of[launch.key] = tuple(launch.gpu_indexes)
        if launch.key.node_rank == 0:
            made = replace(made, ports=(PORT,))
        delay_s = self._node.draws.pick(PREPARE_S)
        if self._node.draws.chance(self._node.world.settings.hung):
            delay_s = self._node.draws.pick(HUNG_S)
            self._node.world.seen("a launch took very long to prepare")
        if self._node.draws.chance(self._node.world.settings.bad_start):
            made = Preparation(error="no such directory", cause="")
            self._node.world.seen("a launch could not be prepared")
        self._answer(delay_s, "prepared", launch.key, made)

    def look(self, order: LookOrder) -> None:
        self._process.later(self._node.draws.pick(LOOK_S), self._look, order)

    def _look(self, order: LookOrder) -> None:
        """What the job's tree and the GPUs show at the moment of the answer."""
        released: bool | None = True if order.purpose is Purpose.RELEASE else None
        if released and self._node.draws.chance(self._node.world.settings.slow_release):
            released = False
            self._node.world.seen("GPUs were not free at once")
        held_by = "GPU-0: 9 bytes used" if released is False else ""
        look = Look(checkpoint=self._saved(order.launch), released=released, held_by=held_by)
        self._give("looked", (order.launch.key, order.purpose, look))

    def _saved(self, launch: Launch) -> SeenCheckpoint | None:
        """A job that was asked to save, and left with its code, has saved."""
        attempt = self._node.host.attempts.get(launch.key)
        record = None if attempt is None else attempt.record
        if attempt is None or record is None or record.noticed is None:
            return None
        if attempt.job.saves_for is None or record.code != attempt.job.saved_code:
            return None
        age_s = max(0.0, self._node.host.clock.now_s() - record.ended_wall_ns / 1e9)
        return SeenCheckpoint(
            path=f"{launch.checkpoint_directory}/step-1",
            step=1,
            mtime_ns=record.ended_wall_ns,
            age_s=age_s,
            evidence="marker",
        )

    def look_at_gpus(self, number: int) -> None:
        self._answer(0.01, "gpus_seen", GpuLook(number, ()))

    def look_at_traffic(self, launch: Launch, since_s: float) -> None:
        """Nothing is sent in a world."""

    def read_profile(self, order: ReadOrder) -> None:
        found = a_found(order, self._node.host.clock.now_s())
        self._answer(0.1, "profile_read", order.launch.key, found)

    def abandon(self, key: RankKey) -> None:
        """Nobody waits for it any more."""

    def tidy(self, key: RankKey) -> None:
        """There are no files."""

    def drop_profile(self, key: RankKey) -> None:
        """There are no records."""

    def drop_profiles_but(self, keys: Iterable[RankKey]) -> None:
        """There are none."""

    def send_log(self, order: OpenLog, handle: Handle | None, never_ran: str, /) -> None:
        """Nobody asks."""

    def send_samples(self, order: OpenSamples, /) -> None:
        """Nobody asks."""

    def run_inside(self, order: OpenExec, handle: Handle | None, /) -> None:
        """Nobody asks."""


def told(attempt: HostAttempt) -> str:
    """An attempt's process, for the story."""
    key = attempt.plan.key
    return f"job {key.job_id}, attempt {key.attempt}, rank {key.node_rank}"
