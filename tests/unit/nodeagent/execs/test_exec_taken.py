"""A command whose caller comes back while the former stream still stands."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import grpc

from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.command import TakenCommand
from dlq_nodeagent.execs.guarded import Ending
from dlq_nodeagent.execs.passing import Output
from dlq_nodeagent.model.launch import RankKey


class OpenGuard:
    """A command that runs until it is closed, and says what a test writes."""

    has_terminal = False

    def __init__(self) -> None:
        self.stdout, self.says = os.pipe()
        self.stderr, self._errors = os.pipe()
        for each in (self.stdout, self.stderr):
            os.set_blocking(each, False)
        self.stdin = -1

    async def wait(self) -> Ending:
        await asyncio.Event().wait()
        return Ending()

    def close(self) -> None:
        for each in (self.stdout, self.says, self.stderr, self._errors):
            os.close(each)

    async def reap(self) -> None:
        pass


class GrpcLikeTalk:
    """A stream whose reader is cancelled when the stream is, as that of grpc.aio is."""

    def __init__(self) -> None:
        self.said: list[Output] = []
        self.come = asyncio.Event()
        self._over: asyncio.Future[grpc.StatusCode] = asyncio.get_running_loop().create_future()
        self.messages = self

    def __aiter__(self) -> GrpcLikeTalk:
        return self

    async def __anext__(self) -> Any:
        await asyncio.shield(self._over)
        raise asyncio.CancelledError

    async def say(self, output: Output) -> None:
        self.said.append(output)
        self.come.set()

    async def taken(self, _size: int, _count: int | None) -> None:
        pass

    async def over(self) -> grpc.StatusCode:
        return await asyncio.shield(self._over)

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(grpc.StatusCode.CANCELLED)


async def test_a_stream_that_is_replaced_does_not_end_the_command() -> None:
    async def judged(ending: Ending) -> Ending:
        return ending

    guard, handle = OpenGuard(), SimpleNamespace(key=RankKey("1", 1, 0))
    command = TakenCommand(
        handle,  # type: ignore[arg-type]  # its key alone is asked for
        guard,  # type: ignore[arg-type]
        kept=True,
        piece_bytes=1024,
        judged=judged,
    )
    former, present = GrpcLikeTalk(), GrpcLikeTalk()
    first = asyncio.create_task(command.attend(former, exec_pb2.ExecSpec()))
    await former.come.wait()
    second = asyncio.create_task(command.attend(present, exec_pb2.ExecSpec(resumed=True)))
    assert await first is False, "the caller is elsewhere, and has not gone"
    await present.come.wait()
    os.write(guard.says, b"on")
    present.come.clear()
    await present.come.wait()
    assert present.said[1] == b"on"
    assert command.attended
    present.end()
    await asyncio.gather(second, return_exceptions=True)
    await command.end()
