"""A stream to the master outlives a writer that is cancelled in the middle of a message."""

from __future__ import annotations

import asyncio
import gc

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.passing import Talk


class SlowCall:
    """A stream that takes a message when it is let; a cancelled write ends it, as gRPC does."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.taken: list[wire.ServeExecRequest] = []
        self.ended = self.lost = False

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
        if self.lost:
            raise asyncio.InvalidStateError("the line was lost")
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


async def test_a_line_that_is_lost_after_its_writer_has_gone_is_no_failure_of_the_agent() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failures.append(what))
    call = SlowCall()
    talk = Talk(call)  # type: ignore[arg-type]  # the four methods that it uses
    writers = [asyncio.create_task(talk.taken(5, number)) for number in (1, 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    call.lost = True
    call.room.set()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert failures == []
