"""An agent that exists on the wire alone: a real session, no host behind it.

What its ranks do, and when, somebody else decides (`begun`, `stopped`); it obeys, says what it is
told to say, and knows when all of it is on the master's disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from grpc import aio

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub

Told = Callable[[str, int, int], object]  # a job, its attempt and the rank


class VirtualAgent:
    """One node of `gpus` GPUs of one type, on a host that was booted `boot_id`; `pool`: whose it
    is, if it is not the cluster's own."""

    def __init__(
        self,
        channel: aio.Channel,
        node_id: str,
        gpus: int,
        begun: Told,
        stopped: Told,
        boot_id: str = "1",
        pool: str = "",
    ) -> None:
        self.node_id = node_id
        self.boot_id = boot_id
        self._gpus, self._pool = gpus, pool
        self._there: set[tuple[str, int, int]] = set()  # ranks that hold its GPUs
        self._begun, self._stopped = begun, stopped
        self._call: Any = AgentServiceStub(channel).Session()
        self._out: asyncio.Queue[wire.SessionRequest] = asyncio.Queue()
        self._said = self._acknowledged = 0
        self._epoch = 1
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def heard(self) -> bool:
        """All that it has reported is on the master's disk."""
        return self._acknowledged == self._said

    @property
    def faults(self) -> list[BaseException | None]:
        """Why it speaks or listens no longer, if so; None: its line was closed."""
        return [task.exception() for task in self._tasks if task.done() and not task.cancelled()]

    async def join(self) -> None:
        """Say hello, and then speak and listen until `close`."""
        facts = wire.NodeFacts(
            hostname=self.node_id, boot_id=self.boot_id, virtual_devices=True, pool=self._pool
        )
        for index in range(self._gpus):
            facts.gpus.add(index=index, gpu_type="h100")
        await self._call.write(wire.SessionRequest(hello=wire.Hello(facts=facts)))
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._speak())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._call.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def report(self, job_id: str, attempt: int, rank: int, phase: Any, **more: Any) -> None:
        """Say where a rank stands."""
        self._said += 1
        if phase == wire.RANK_PHASE_EXITED:
            self._there.discard((job_id, attempt, rank))
        report = wire.RankReport(
            sequence=self._said, job_id=job_id, node_rank=rank, phase=phase, **more
        )
        report.fence.epoch, report.fence.attempt = self._epoch, attempt
        self._out.put_nowait(wire.SessionRequest(report=report))

    def beat(self, *said: wire.RankProgress) -> None:
        """A sign of life, with what its ranks say."""
        beat = wire.Heartbeat(progress=said)
        self._out.put_nowait(wire.SessionRequest(heartbeat=beat))

    async def _speak(self) -> None:
        while True:
            await self._call.write(await self._out.get())

    async def _listen(self) -> None:
        while (message := await self._call.read()) is not aio.EOF:
            body = message.WhichOneof("body")
            if body == "report_ack":
                self._acknowledged = max(self._acknowledged, message.report_ack.sequence)
            elif body == "welcome":
                self._epoch = message.welcome.epoch
            elif body == "command":
                self._obey(message.command)

    def _obey(self, command: wire.Command) -> None:
        what = command.WhichOneof("body")
        if what == "launch":
            self._launch(command.launch)
        elif what == "stop":
            stop = command.stop
            who = stop.job_id, stop.fence.attempt, stop.node_rank
            if stop.grace_duration.ToNanoseconds():
                self._stopped(*who)
            else:
                self.report(*who, wire.RANK_PHASE_EXITED, signal=9, noticed="stop")
        elif what == "look_at_gpus":
            self._look(command.look_at_gpus.number)
            return
        taken = wire.CommandResult(sequence=command.sequence)
        self._out.put_nowait(wire.SessionRequest(command_result=taken))

    def _look(self, number: int) -> None:
        """Whoever is there holds memory of all GPUs."""
        look = wire.GpuLook(number=number)
        for index in range(self._gpus):
            look.gpus.add(index=index, used_memory_bytes=len(self._there) << 33)
        self._out.put_nowait(wire.SessionRequest(gpu_look=look))

    def _launch(self, launch: wire.LaunchCommand) -> None:
        who = launch.job_id, launch.fence.attempt, launch.node_rank
        if launch.at_barrier:
            self.report(*who, wire.RANK_PHASE_READY, ports=[launch.port_first])
            return
        self._there.add(who)
        self.report(*who, wire.RANK_PHASE_STARTED, gpu_indexes=launch.gpu_indexes)
        self._begun(*who)
