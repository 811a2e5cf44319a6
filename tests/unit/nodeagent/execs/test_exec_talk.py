"""A stream to the master outlives a writer that is cancelled in the middle of a message."""

from __future__ import annotations

import asyncio

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.passing import Talk


class SlowCall:
    """A stream that takes a message when it is let; a cancelled write ends it, as gRPC does."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.taken: list[wire.ServeExecRequest] = []
        self.ended = False

    def __aiter__(self) -> SlowCall:
        return self

    async def __anext__(self) -> wire.ServeExecResponse:
        raise StopAsyncIteration

    async def write(self, message: wire.ServeExecRequest) -> None:
        if self.ended:
            raise asyncio.InvalidStateError("the stream has ended")
        try:
            await self.room.wait()
        except asyncio.CancelledError:
            self.ended = True
            raise
        self.taken.append(message)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK


async def test_a_cancelled_writer_leaves_the_stream_to_the_last_word() -> None:
    call = SlowCall()
    talk = Talk(call)  # type: ignore[arg-type]  # the four methods that it uses
    feeding = asyncio.create_task(talk.taken(5, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    call.room.set()
    await talk.say(exec_pb2.ExecOutput(ended=exec_pb2.ExecEnded(exit_code=0)))
    assert not call.ended
    assert [one.output.WhichOneof("body") for one in call.taken] == ["input_count", "ended"]
