"""A right that ends while an answer of a stream is on its way: the client hears why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from dlq_common.errors import Unauthenticated
from dlq_master.rpc.calls import open_calls, surround
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.open_calls import OpenCalls


def removed(_identity: object) -> None:
    raise Unauthenticated("the user was removed")


def an_open_call(*, writing: bool) -> Any:
    return SimpleNamespace(streaming=True, identity="alice", cut=None, writing=writing)


async def looked_at(call: Any) -> tuple[OpenCalls, asyncio.Task[Any]]:
    """A task that serves this call, of which its caller's right has ended."""
    calls, entered = OpenCalls(removed), asyncio.Event()

    async def serve() -> None:
        calls.entered(call)
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await entered.wait()
    assert calls.look() == 1
    assert isinstance(call.cut, Unauthenticated)
    return calls, task


async def test_a_call_that_waits_is_ended_at_once() -> None:
    _, task = await looked_at(an_open_call(writing=False))
    assert task.cancelling()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_that_writes_is_left_to_its_next_step_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_calls, "WRITING_S", 0.0)
    _, task = await looked_at(an_open_call(writing=True))
    assert not task.cancelling(), "gRPC would tell its client nothing"
    with pytest.raises(asyncio.CancelledError):
        await task  # its client takes nothing


async def test_one_that_has_ended_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_calls, "WRITING_S", 0.0)
    call = an_open_call(writing=True)
    calls, task = await looked_at(call)
    calls.left(call)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.cancelling()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_next_step_of_a_stream_that_was_cut_is_its_refusal() -> None:
    begun: list[Call] = []
    ended: list[BaseException | None] = []

    class Passing:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
            ended.append(error)

    async def answers(_call: Call, _request: object) -> AsyncIterator[int]:
        yield 1
        yield 2

    nothing: Any = None

    def begin(request: Any, context: Any) -> tuple[Call, Any]:
        begun.append(Call("/x", nothing, context, True, nothing))
        return begun[0], request

    passage: Any = SimpleNamespace(of=lambda _call: Passing())
    stream = surround._streaming(answers, begin, passage)("request", nothing)
    assert await anext(stream) == 1
    assert begun[0].writing
    begun[0].cut = Unauthenticated("the user was removed")
    with pytest.raises(Unauthenticated):
        await anext(stream)
    assert [type(each) for each in ended] == [Unauthenticated]
