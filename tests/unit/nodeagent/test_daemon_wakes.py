"""The running agent is woken by the end of a rank."""

import asyncio
import os

from dlq_common.clock import SteadyClock
from dlq_nodeagent.daemon import woken_by_ends
from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime


class TellingRuntime(FakeRuntime):
    """One that tells of ends by a pipe."""

    def __init__(self, ends: int) -> None:
        super().__init__(FakeHost(SteadyClock()))
        self._ends = ends

    def ends(self) -> int | None:
        return self._ends


async def test_an_end_wakes_the_agent_as_long_as_it_turns() -> None:
    read, write = os.pipe()
    try:
        wake = asyncio.Event()
        with woken_by_ends(TellingRuntime(read), wake):
            os.write(write, b"x")
            await asyncio.wait_for(wake.wait(), 30)
        assert not asyncio.get_running_loop().remove_reader(read)
    finally:
        os.close(read)
        os.close(write)


async def test_an_end_that_was_taken_meanwhile_wakes_nobody_again() -> None:
    read, write = os.pipe()
    turns = 0
    try:
        wake = asyncio.Event()
        with woken_by_ends(TellingRuntime(read), wake):
            for _ in range(3):
                os.write(write, b"x")
                await asyncio.wait_for(wake.wait(), 30)
                wake.clear()
                os.read(read, 1)
                turns += 1
                for _ in range(5):  # rounds of the loop, in which it looks at the descriptor
                    await asyncio.sleep(0)
                assert not wake.is_set()
    finally:
        os.close(read)
        os.close(write)
    assert turns == 3


async def test_a_runtime_that_tells_nothing_is_polled() -> None:
    with woken_by_ends(FakeRuntime(FakeHost(SteadyClock())), asyncio.Event()) as nothing:
        assert nothing is None
