"""The inbox: what somebody waits for has a turn at once, heartbeats share one."""

from __future__ import annotations

import asyncio

import pytest

from dlq_master.control.loop.inbox import MOST_BY, Inbox
from dlq_master.control.stimuli import Heartbeat, Tick
from dlq_master.model.ids import NodeId

FOREVER_S = 1e6


def beat(number: int) -> Heartbeat:
    return Heartbeat(node_id=NodeId(f"n{number}"), session_id=number, hold_revision=0, progress=())


async def test_heartbeats_of_one_moment_share_a_turn() -> None:
    inbox = Inbox()
    turn = asyncio.create_task(inbox.drain(FOREVER_S))
    for number in range(5):
        await asyncio.sleep(0)
        inbox.put_by(beat(number), float(number))
    letters = await turn
    assert [letter.arrived_s for letter in letters] == [0.0, 1.0, 2.0, 3.0, 4.0]


async def test_what_somebody_waits_for_takes_the_heartbeats_along_at_once() -> None:
    inbox = Inbox()
    inbox.put_by(beat(1), 1.0)
    inbox.put(Tick("leases"))
    turn = asyncio.create_task(inbox.drain(FOREVER_S))
    await asyncio.sleep(0)
    assert turn.done()
    assert [type(letter.stimulus) for letter in turn.result()] == [Heartbeat, Tick]


@pytest.mark.parametrize(("count", "at_once"), [(MOST_BY - 1, False), (MOST_BY, True)])
async def test_a_turn_full_of_heartbeats_comes_at_once(count: int, at_once: bool) -> None:
    inbox = Inbox()
    for number in range(count):
        inbox.put_by(beat(number), 1.0)
    turn = asyncio.create_task(inbox.drain(FOREVER_S))
    await asyncio.sleep(0)
    assert turn.done() is at_once
    assert len(await turn) == count
