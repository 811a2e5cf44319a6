"""Lists of steps that come within a moment are written together, and told when they are on disk."""

import asyncio
from collections.abc import Sequence

import pytest

from dlq_common.errors import Unavailable
from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.agents.step_keeper import StepKeeper, StepStore
from support.kept_steps import KeptSteps


def a_list(job: int, told_s: float = 1.0) -> TakenSteps:
    return TakenSteps(AttemptKey(JobId(job), 1), told_s, b"")


class Moment:
    """The pause in which lists are gathered; it ends when the test says so."""

    def __init__(self) -> None:
        self.pauses = 0
        self.over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.pauses += 1
        await self.over.wait()
        self.over.clear()


async def test_all_that_come_within_a_moment_are_written_at_once() -> None:
    kept, moment = KeptSteps(), Moment()
    keeper = StepKeeper(kept.store, moment)
    waiting = [asyncio.create_task(keeper.keep([a_list(job)])) for job in range(1, 101)]
    waiting.append(asyncio.create_task(keeper.keep([a_list(1, told_s=2.0)])))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    moment.over.set()
    assert all(await asyncio.gather(*waiting))
    assert (kept.puts, len(kept.lists)) == (1, 100)
    assert kept.lists[AttemptKey(JobId(1), 1)].told_s == 2.0


async def test_one_that_comes_later_is_written_later() -> None:
    kept, moment = KeptSteps(), Moment()
    keeper = StepKeeper(kept.store, moment)
    for job in (1, 2):
        moment.over.set()
        assert await keeper.keep([a_list(job)])
    assert kept.puts == 2


async def test_without_room_nobody_is_told_that_it_is_on_disk() -> None:
    kept, moment = KeptSteps(), Moment()
    kept.room = False
    moment.over.set()
    assert not await StepKeeper(kept.store, moment).keep([a_list(1)])


async def test_a_failure_reaches_all_that_wait_and_the_next_one_is_tried() -> None:
    kept, moment, fails = KeptSteps(), Moment(), [True, False]

    async def put(taken: Sequence[TakenSteps]) -> bool:
        if fails.pop(0):
            raise Unavailable("the store has failed before")
        return await kept.store.put(taken)

    keeper = StepKeeper(StepStore(put, kept.store.read), moment)
    waiting = [asyncio.create_task(keeper.keep([a_list(job)])) for job in (1, 2)]
    await asyncio.sleep(0)
    moment.over.set()
    for task in waiting:
        with pytest.raises(Unavailable):
            await task
    moment.over.set()
    assert await keeper.keep([a_list(3)])


async def test_a_caller_that_goes_takes_nobody_along() -> None:
    kept, moment = KeptSteps(), Moment()
    keeper = StepKeeper(kept.store, moment)
    gone = asyncio.create_task(keeper.keep([a_list(1)]))
    stays = asyncio.create_task(keeper.keep([a_list(2)]))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    moment.over.set()
    assert await stays
    assert len(kept.lists) == 2
