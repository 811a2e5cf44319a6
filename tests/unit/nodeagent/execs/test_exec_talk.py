"""A stream to the master outlives a writer that is cancelled in the middle of a message."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_nodeagent.execs.passing import MOST_UNTAKEN, CommandInputs, KeptOutputs, Talk
from dlq_nodeagent.line.channel import hang_up


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


class UnreadableCall(SlowCall):
    """A stream whose first message is no message: gRPC hands over None."""

    async def __anext__(self) -> wire.ServeExecResponse:
        return None  # type: ignore[return-value]


async def test_bytes_that_are_no_message_end_their_command_and_no_agent() -> None:
    talk = Talk(UnreadableCall())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be read"):
        await anext(talk.messages)


async def test_a_caller_cannot_go_back_behind_what_it_has_confirmed() -> None:
    outputs = KeptOutputs()
    for _ in range(3):
        await outputs.put(exec_pb2.ExecOutput(stdout=b"x"))
    outputs.confirm(2)
    assert await outputs.number(2) == exec_pb2.ExecOutput(stdout=b"x")
    with pytest.raises(ValueError, match="has confirmed"):
        await outputs.number(1)


def test_a_master_that_never_stops_is_ended_also_when_its_words_have_no_bytes() -> None:
    inputs, talk = CommandInputs(FakeGuard()), Talk(SlowCall())  # type: ignore[arg-type]
    for _ in range(MOST_UNTAKEN):
        inputs.put(exec_pb2.ExecInput(stdin=b""), talk)
    with pytest.raises(ValueError, match="more input"):
        inputs.put(exec_pb2.ExecInput(stdin=b""), talk)


def test_bytes_that_no_field_holds_do_not_wait_with_the_inputs() -> None:
    inputs, talk = CommandInputs(FakeGuard()), Talk(SlowCall())  # type: ignore[arg-type]
    stuffed = exec_pb2.ExecInput.FromString(b"\x82\x7d\x80\x80\x04" + bytes(1 << 16))
    assert stuffed.ByteSize() > 1 << 16
    before = sys.getrefcount(stuffed)
    inputs.put(stuffed, talk)
    assert sys.getrefcount(stuffed) == before, "only its stdin waits"


class FakeGuard:
    """A command that takes nothing."""


class DoneCall:
    """As grpc.aio after a failed write: done for its user, and alive in its core."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._cython_call = self

    def cancel(self, details: str = "") -> bool:
        if details:
            self.ended.append(details)
        return False


def test_a_call_that_is_done_for_its_user_lets_go_of_its_connection_too() -> None:
    call = DoneCall()
    hang_up(call)
    assert call.ended == ["hung up"]


async def test_a_real_call_is_cancelled_in_its_core() -> None:
    """The name is private to grpc.aio: a release without it fails here, and not in silence."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        call = AgentServiceStub(channel).ServeExec()
        assert hasattr(call, "_cython_call")
        hang_up(call)
        assert call.cancelled()


async def test_a_call_that_was_heard_goes_with_its_last_holder() -> None:
    """Its socket would stay until Python looks at all old objects: in a quiet agent, for ever."""

    async def serve(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        yield wire.ServeExecResponse().SerializeToString()
        await anext(requests)  # the agent's name
        await anext(requests)  # it never says more

    server = grpc.aio.server()
    handler: Any = grpc.stream_stream_rpc_method_handler(serve)
    made = grpc.method_handlers_generic_handler("dlq.v1.AgentService", {"ServeExec": handler})
    server.add_generic_rpc_handlers((made,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.collect()
    gc.disable()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = AgentServiceStub(channel).ServeExec()
            talk = Talk(call)
            await talk.name("r")
            await anext(talk.messages)
            talk.end()
        gone = weakref.ref(call)
        del talk, call
        for _ in range(1_000):
            if gone() is None:
                break
            await asyncio.sleep(0.01)
        assert gone() is None
    finally:
        gc.enable()
        await server.stop(None)
