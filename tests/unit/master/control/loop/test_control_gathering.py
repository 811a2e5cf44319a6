"""The inbox gathers: callers that come together share a turn, and one alone waits for nobody."""

from __future__ import annotations

import asyncio

import pytest

from dlq_master.control.loop.inbox import SEVERAL, Envelope, Inbox
from dlq_master.control.stimuli import Tick

FOREVER_S = 1e6


def put(inbox: Inbox, name: str, *, asked: bool = True) -> None:
    answer = asyncio.get_running_loop().create_future() if asked else None
    inbox.put(Tick(name), answer)


def names(letters: list[Envelope]) -> list[str]:
    return [letter.stimulus.name for letter in letters if isinstance(letter.stimulus, Tick)]


@pytest.mark.parametrize(
    ("callers", "asked", "found"),
    [(SEVERAL, True, ["a", "b"]), (1, True, ["a"]), (SEVERAL, False, ["a"])],
)
async def test_after_several_callers_the_next_ones_are_waited_for(
    callers: int, asked: bool, found: list[str]
) -> None:
    inbox = Inbox()
    for number in range(callers):
        put(inbox, str(number), asked=asked)
    assert len(await inbox.drain(FOREVER_S)) == callers
    put(inbox, "a")
    asyncio.get_running_loop().call_soon(put, inbox, "b")
    assert names(await inbox.drain(FOREVER_S)) == found


async def test_a_turn_may_be_woken_without_a_letter_before_and_while_it_waits() -> None:
    inbox = Inbox()
    inbox.wake()
    assert await inbox.drain(FOREVER_S) == []
    asyncio.get_running_loop().call_soon(inbox.wake)
    assert await inbox.drain(FOREVER_S) == []


async def test_what_comes_while_it_waits_ends_the_wait() -> None:
    inbox = Inbox()
    asyncio.get_running_loop().call_soon(put, inbox, "a")
    assert names(await inbox.drain(FOREVER_S)) == ["a"]
    assert await inbox.drain(0.0) == []
