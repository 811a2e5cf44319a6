"""The Python calls of a submission, counted: as many behind a long queue as behind a short one,
whatever the policy.
"""

from pathlib import Path

import pytest

from support.extent import spread
from support.submit_door import counted_calls, submit_door

MOST_CALLS = 620
MOST_GROWTH = 1.1
COUNTED = 60


@pytest.mark.parametrize("policy", spread(["dlq", "fifo"], 1))
async def test_a_submission_costs_the_same_behind_a_long_queue(tmp_path: Path, policy: str) -> None:
    counts = []
    async with submit_door(tmp_path, policy=policy) as door:
        for waiting in (COUNTED, 2_000):
            await door.submit_many(waiting // 2)
            await door.submit_many(waiting // 2)
            with counted_calls() as calls:
                await door.submit(COUNTED)
            counts.append(sum(calls.values()) / COUNTED)
    short, long = counts
    assert long <= short * MOST_GROWTH
    assert short <= MOST_CALLS


async def test_a_brief_answer_and_a_batch_cost_less(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        counts = {}
        for way in (door.submit, door.submit_brief, door.submit_many):
            await way(COUNTED)
            with counted_calls() as calls:
                await way(COUNTED)
            counts[way.__name__] = sum(calls.values()) / COUNTED
    assert counts["submit_many"] < counts["submit_brief"] < counts["submit"] <= MOST_CALLS


async def test_a_task_of_an_array_costs_a_fraction_of_a_job(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        await door.submit_array(10)
        with counted_calls() as calls:
            await door.submit_array(1_000)
    assert sum(calls.values()) / 1_000 <= 75
