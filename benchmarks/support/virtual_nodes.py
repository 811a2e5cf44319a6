"""A thousand agents in one process: real sessions over mutual TLS, no hosts behind them.

A launched rank says that it prepares and that it runs, and works as long as its environment names,
then ends. (`RUN_S` is seconds of work left over all attempts.) A stopped rank saves for a moment
and leaves; its work until then counts.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from grpc import aio, ssl_channel_credentials

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.pki import Authority, new_key_and_csr

SAVE_S = 1.0
MEMORY_BYTES = 500 << 30
RUN = "RUN_S"
RECONNECT_MS = 1_000


class Rank(NamedTuple):
    """One rank of an attempt, as its launch named it."""

    job_id: str
    epoch: int
    attempt: int
    number: int


@dataclass(slots=True)
class Tally:
    """The counts over all nodes so far: `starts` and `ends` of jobs (their first ranks), answers to
    heartbeats.
    """

    counts: Counter[str] = field(default_factory=Counter)
    beats_s: list[float] = field(default_factory=list)
    done_s: dict[str, float] = field(default_factory=dict)  # work of jobs that were stopped


class VirtualNode:
    """One node of `gpus` GPUs of one type."""

    def __init__(
        self, channel: aio.Channel, node_id: str, gpus: int, tally: Tally, pool: str = ""
    ) -> None:
        """`pool`: its pool, as its agent says; empty: the cluster's own."""
        self.node_id = node_id
        self._pool = pool
        self._gpus = gpus
        self._tally = tally
        self._call: Any = AgentServiceStub(channel).Session()
        self._out: asyncio.Queue[wire.SessionRequest] = asyncio.Queue()
        self._reports = self._beats = 0
        self._ranks: dict[Rank, tuple[asyncio.TimerHandle, float]] = {}  # its end, and its start
        self._saving = 0  # ranks that were asked to leave
        self._sent_s: dict[int, float] = {}

    async def run(self, welcomed: Callable[[], object]) -> None:
        """Speak and listen until it is cancelled or the master hangs up."""
        facts = wire.NodeFacts(
            hostname=self.node_id,
            boot_id="1",
            virtual_devices=True,
            pool=self._pool,
            memory_bytes=MEMORY_BYTES,
        )
        for index in range(self._gpus):
            facts.gpus.add(index=index, gpu_type="h100")
        await self._call.write(wire.SessionRequest(hello=wire.Hello(facts=facts)))
        first = await self._call.read()
        welcomed()
        speak = asyncio.create_task(self._speak())
        beat = asyncio.create_task(self._beat(first.welcome.heartbeat_duration.ToSeconds()))
        try:
            while (message := await self._call.read()) is not aio.EOF:
                self._hear(message)
        finally:
            for task in (speak, beat):
                task.cancel()
            self._call.cancel()

    async def _speak(self) -> None:
        while True:
            await self._call.write(await self._out.get())

    async def _beat(self, every_s: float) -> None:
        await asyncio.sleep(random.uniform(0.0, every_s))
        while True:
            self._beats += 1
            beat = wire.Heartbeat(sequence=self._beats)
            for rank in self._ranks:
                told = beat.progress.add(job_id=rank.job_id, node_rank=rank.number)
                told.fence.epoch, told.fence.attempt = rank.epoch, rank.attempt
                told.step = self._beats
                told.age_duration.FromSeconds(1)
            self._sent_s[self._beats] = time.perf_counter()
            self._out.put_nowait(wire.SessionRequest(heartbeat=beat))
            await asyncio.sleep(every_s)

    def _hear(self, message: wire.SessionResponse) -> None:
        body = message.WhichOneof("body")
        if body == "heartbeat_reply":
            sent_s = self._sent_s.pop(message.heartbeat_reply.sequence)
            self._tally.beats_s.append(time.perf_counter() - sent_s)
        elif body == "command":
            command = message.command
            what = command.WhichOneof("body")
            if what == "launch":
                self._launch(command.launch)
            elif what == "stop":
                self._stop(command.stop)
            elif what == "look_at_gpus":
                self._look(command.look_at_gpus.number)
                return
            taken = wire.CommandResult(sequence=command.sequence)
            self._out.put_nowait(wire.SessionRequest(command_result=taken))

    def _look(self, number: int) -> None:
        """A running rank holds memory of all its GPUs, as far as its devices say."""
        look = wire.GpuLook(number=number)
        for index in range(self._gpus):
            used = 1 << 33 if self._ranks or self._saving else 0
            look.gpus.add(index=index, used_memory_bytes=used, process_count=int(used > 0))
        self._out.put_nowait(wire.SessionRequest(gpu_look=look))

    def _launch(self, launch: wire.LaunchCommand) -> None:
        fence = launch.fence
        rank = Rank(launch.job_id, fence.epoch, fence.attempt, launch.node_rank)
        if launch.at_barrier:
            self._report(rank, wire.RANK_PHASE_READY, ports=[launch.port_first])
            return
        self._report(rank, wire.RANK_PHASE_PREPARING)
        self._report(rank, wire.RANK_PHASE_STARTED, gpu_indexes=launch.gpu_indexes)
        left_s = float(launch.spec.environment[RUN]) - self._tally.done_s.get(rank.job_id, 0.0)
        loop = asyncio.get_running_loop()
        end = loop.call_later(max(0.0, left_s), self._finish, rank)
        self._ranks[rank] = (end, loop.time())
        self._tally.counts["starts"] += not rank.number

    def _finish(self, rank: Rank) -> None:
        del self._ranks[rank]
        self._report(rank, wire.RANK_PHASE_EXITED, exit_code=0)
        self._tally.counts["completions"] += not rank.number
        self._tally.done_s.pop(rank.job_id, None)

    def _stop(self, stop: wire.StopCommand) -> None:
        fence = stop.fence
        rank = Rank(stop.job_id, fence.epoch, fence.attempt, stop.node_rank)
        known = self._ranks.pop(rank, None)
        if known is None:
            return  # it has ended by itself
        end, begun_s = known
        end.cancel()
        loop = asyncio.get_running_loop()
        if not rank.number:
            done_s = self._tally.done_s.get(rank.job_id, 0.0) + loop.time() - begun_s
            self._tally.done_s[rank.job_id] = done_s
            self._tally.counts["pauses"] += 1
        self._saving += 1
        delay_s = stop.delay_duration.ToNanoseconds() / 1e9
        loop.call_later(delay_s + SAVE_S, self._leave, rank)

    def _leave(self, rank: Rank) -> None:
        self._saving -= 1
        path = f"/checkpoints/{rank.job_id}/{rank.attempt}"
        saved = wire.CheckpointFact(path=path, after_notice=True)
        more: dict[str, Any] = {"exit_code": 99, "checkpoint": saved, "noticed": "stop"}
        self._report(rank, wire.RANK_PHASE_EXITED, **more)

    def _report(self, rank: Rank, phase: Any, **more: Any) -> None:
        self._reports += 1
        report = wire.RankReport(
            sequence=self._reports, job_id=rank.job_id, node_rank=rank.number, phase=phase, **more
        )
        report.fence.epoch, report.fence.attempt = rank.epoch, rank.attempt
        self._out.put_nowait(wire.SessionRequest(report=report))


class Fleet:
    """Nodes `n0000`, `n0001`, ... that the master knows, all on the line."""

    def __init__(
        self, address: str, authority: Authority, count: int, gpus: int, pool: str = ""
    ) -> None:
        self._pool = pool
        self.tally = Tally()
        self._address = address
        self._authority = authority
        self._names = [f"n{number:04d}" for number in range(count)]
        self._gpus = gpus
        self._channels = dict[str, aio.Channel]()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, at_once: int = 50) -> None:
        """Return when every node has been welcomed."""
        gate = asyncio.Semaphore(at_once)
        ca = self._authority.certificate_pem()

        async def one(name: str) -> None:
            async with gate:
                made = new_key_and_csr(name)
                signed = self._authority.sign_node(made.request, name, time.time())
                credentials = ssl_channel_credentials(ca, made.key, signed)
                options = [
                    ("grpc.ssl_target_name_override", SERVER_NAME),
                    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
                ]
                channel = aio.secure_channel(self._address, credentials, options=options)
                self._channels[name] = channel
                async with asyncio.timeout(60.0):
                    if not await self._welcomed(name, channel):
                        raise RuntimeError(f"the master does not welcome {name}")

        await asyncio.gather(*(one(name) for name in self._names))

    async def come_back(self, jitter_s: float) -> None:
        """After a restart of the master: every node dials within this time, and again until it is
        welcomed. Ranks of before are forgotten.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

        async def one(name: str, channel: aio.Channel) -> None:
            pause_s = random.uniform(0.0, jitter_s)
            welcomed = False
            while not welcomed:
                await asyncio.sleep(pause_s)
                welcomed = await self._welcomed(name, channel)
                pause_s = RECONNECT_MS / 1e3

        await asyncio.gather(*(one(*each) for each in self._channels.items()))

    async def _welcomed(self, name: str, channel: aio.Channel) -> bool:
        """Open a session; whether the master takes it."""
        welcomed = asyncio.Event()
        node = VirtualNode(channel, name, self._gpus, self.tally, self._pool)
        task = asyncio.create_task(node.run(welcomed.set))
        waiting = asyncio.create_task(welcomed.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        self._tasks.append(task)
        return True

    def check(self) -> None:
        """Raise the error that ended a node's session."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise RuntimeError("the master has hung up on a node")

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
