"""A machine that boots while its master restarts joins all the same."""

import asyncio

import pytest

from dlq_common.errors import Unauthenticated, Unavailable
from dlq_nodeagent.line.identity import Joined, persist
from support.fake_clock import FakeClock


class Door:
    """A master that answers from the given try on; each takes ten seconds."""

    def __init__(self, opens: int, clock: FakeClock) -> None:
        self.opens, self.clock, self.tries = opens, clock, 0

    async def knock(self) -> Joined:
        self.tries += 1
        self.clock.advance(10.0)
        if self.tries < self.opens:
            raise Unavailable("no TLS server")
        return Joined("gpu01", "head:7320")


def knocked(opens: int, patience_s: float) -> Door:
    clock = FakeClock()
    door = Door(opens, clock)
    asyncio.run(persist(door.knock, patience_s, clock, pause_s=0.0))
    return door


def test_it_is_tried_again_while_nobody_answers() -> None:
    assert knocked(4, patience_s=60.0).tries == 4


def test_in_the_end_it_gives_up_and_without_patience_at_once() -> None:
    for patience_s in (0.0, 60.0):
        with pytest.raises(Unavailable):
            knocked(100, patience_s)


def test_who_is_refused_asks_no_second_time() -> None:
    tries = []

    async def refused() -> Joined:
        tries.append(1)
        raise Unauthenticated("no such token")

    with pytest.raises(Unauthenticated):
        asyncio.run(persist(refused, 60.0, FakeClock(), pause_s=0.0))
    assert tries == [1]
