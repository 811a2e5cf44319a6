"""Lines of one identity's calls, and slices of long answers: who goes on when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dlq_common.errors import TryAgain
from dlq_common.identity.pki import Role
from dlq_master.rpc.calls.limits import COMMANDS_OF_A_PERSON, STREAMS_OF_A_PERSON, CallLimits
from dlq_master.rpc.calls.reads import ENCODED, LOOKED_AT, SLICE, Lines, Slices

ROUNDS = 20  # of the loop: more than any step here needs
NEVER_S = 1e6


async def rounds(count: int = ROUNDS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def place(lines: Lines, name: str) -> AsyncIterator[None]:
    """Hold a place, as a call does."""
    await lines.enter(name)
    try:
        yield
    finally:
        lines.leave(name)


async def test_only_so_many_of_one_identity_are_served_and_others_are_not_touched() -> None:
    lines, served, go_on = Lines("reads", at_once=2, in_line=3), list[str](), asyncio.Event()

    async def read(name: str) -> None:
        async with place(lines, name):
            served.append(name)
            await go_on.wait()

    calls = [asyncio.create_task(read("alice")) for _ in range(5)]
    await rounds()
    assert served == ["alice"] * 2
    with pytest.raises(TryAgain) as refused:
        await read("alice")
    facts = refused.value.metadata
    assert (facts["limit"], facts["used"], facts["retry_after_s"]) == ("reads", "5", "1")
    calls.append(asyncio.create_task(read("bob")))
    await rounds()
    assert served[2:] == ["bob"]
    go_on.set()
    await asyncio.gather(*calls)
    assert served.count("alice") == 5


async def test_who_gives_up_in_the_line_leaves_no_place_taken() -> None:
    lines = Lines("reads", at_once=1, in_line=5)
    async with AsyncExitStack() as held:
        await held.enter_async_context(place(lines, "alice"))
        waiting = [
            asyncio.create_task(held.enter_async_context(place(lines, "alice"))) for _ in "ab"
        ]
        await rounds()
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(60.0), place(lines, "alice"):
        assert True


async def test_who_is_cancelled_as_its_place_comes_hands_it_on() -> None:
    lines = Lines("reads", at_once=1, in_line=5)
    entered = asyncio.Event()

    async def read() -> None:
        async with place(lines, "alice"):
            entered.set()

    async with AsyncExitStack() as held:
        await held.enter_async_context(place(lines, "alice"))
        first, second = (asyncio.create_task(read()) for _ in range(2))
        await rounds()
        await held.aclose()  # the place is given to the first, which has not run since
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        async with asyncio.timeout(60.0):
            await second
    assert entered.is_set()


async def test_the_loop_does_one_slice_a_round_however_many_answers_are_made() -> None:
    slices, made, most = Slices(), list[str](), 0

    async def answer(name: str, count: int) -> None:
        breathe = slices.of(name)
        for _ in range(count):
            made.append(name)
            await breathe(SLICE)

    answers = [asyncio.create_task(answer("alice", 10)) for _ in range(20)]
    await asyncio.sleep(0)  # each has begun: its first slice
    seen = len(made)
    while not all(one.done() for one in answers):
        await asyncio.sleep(0)
        most, seen = max(most, len(made) - seen), len(made)
    assert most == 1
    assert len(made) == 200


async def test_identities_take_turns() -> None:
    slices, made = Slices(), list[str]()

    async def answer(name: str, count: int) -> None:
        breathe = slices.of(name)
        for _ in range(count):
            await breathe(SLICE)
            made.append(name)

    many = [asyncio.create_task(answer("alice", 10)) for _ in range(20)]
    few = asyncio.create_task(answer("bob", 5))
    async with asyncio.timeout(60.0):
        await few
    assert made.count("alice") <= 6, "one for each of bob's, and perhaps the first"
    await asyncio.gather(*many)


async def test_a_slice_holds_few_rows_that_are_told_or_many_that_are_looked_at() -> None:
    for cost in (LOOKED_AT, ENCODED):
        slices, rows, waits = Slices(), 0, 0
        breathe = slices.of("alice")
        while not waits:
            rows += 1
            step = asyncio.ensure_future(breathe(cost))
            await asyncio.sleep(0)
            waits += not step.done()
            await step
        assert rows == SLICE // cost


async def test_calls_that_come_go_before_the_next_slice() -> None:
    slices, made = Slices(pause_s=NEVER_S), list[int]()

    async def answer() -> None:
        breathe = slices.of("alice")
        for number in range(10):
            made.append(number)
            await breathe(SLICE)

    listed = asyncio.create_task(answer())
    await rounds(3)
    await CallLimits(slices).enter(a_change())
    seen = len(made)
    await rounds()
    assert len(made) <= seen + 1 < 10, "at most the slice that was already given"
    listed.cancel()


async def test_an_answer_is_made_without_pauses_while_no_call_comes() -> None:
    slices = Slices(pause_s=NEVER_S)
    breathe = slices.of("alice")
    async with asyncio.timeout(60.0):
        for _ in range(10):
            await breathe(SLICE)


async def test_an_answer_is_made_however_many_calls_come() -> None:
    slices = Slices(pause_s=0.0)
    breathe = slices.of("alice")
    async with asyncio.timeout(60.0):
        for _ in range(10):
            slices.came()
            await breathe(SLICE)


async def test_streams_of_commands_are_counted_apart_and_each_has_room_to_move() -> None:
    limits = CallLimits(Slices())
    watch, command = "/dlq.v1.JobService/WatchJobs", "/dlq.v1.JobService/ExecJob"
    for path, most in ((watch, STREAMS_OF_A_PERSON), (command, COMMANDS_OF_A_PERSON)):
        for _ in range(most):
            await limits.enter(a_stream(path))
        with pytest.raises(TryAgain, match=f"has {most} streams open"):
            await limits.enter(a_stream(path))
    limits.leave(a_stream(command))
    with pytest.raises(TryAgain):
        await limits.enter(a_stream(watch))
    await limits.enter(a_stream(command))


def a_stream(path: str) -> Any:
    return SimpleNamespace(
        identity=SimpleNamespace(name="bob", role=Role.USER), streaming=True, path=path
    )


def a_change() -> Any:
    return SimpleNamespace(
        identity=SimpleNamespace(name="bob", role=Role.USER),
        streaming=False,
        path="/dlq.v1.JobService/SubmitJob",
        method=SimpleNamespace(changes=True),
        context=SimpleNamespace(time_remaining=lambda: 10.0),
    )
