"""The Python calls of a submission, counted: as many behind a long queue as behind a short one,
whatever the policy.
"""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from benchmarks.support.crowd import joined

from dlq_common.daemon.logs import configure_logging
from support.counted_calls import counted_calls
from support.extent import spread
from support.fake_clock import FakeClock
from support.submit_door import submit_door

MOST_CALLS = 480
MOST_CALLS_ALONE = 770  # with a turn of its own
MOST_CALLS_OF_MANY = 130
MOST_GROWTH = 1.1
COUNTED = 60


@pytest.fixture(autouse=True)
def _logs_as_in_a_master() -> Iterator[None]:
    """Whatever logs another test has set up: the calls of a line are counted too."""
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logging(FakeClock(), stream=io.StringIO(), as_json=True)
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize("policy", spread(["dlq", "fifo"], 1))
async def test_a_submission_costs_the_same_behind_a_long_queue(tmp_path: Path, policy: str) -> None:
    counts = []
    async with submit_door(tmp_path, policy=policy) as door:
        for waiting in (COUNTED, 2_000):
            await door.submit_many(waiting // 2)
            await door.submit_many(waiting // 2)
            with counted_calls() as calls:
                await door.submit_in_turn(COUNTED)
            counts.append(sum(calls.values()) / COUNTED)
    short, long = counts
    assert long <= short * MOST_GROWTH
    assert short <= MOST_CALLS_ALONE


async def test_jobs_that_all_differ_cost_the_same_behind_a_long_queue(tmp_path: Path) -> None:
    """Each has a family of its own, and none of them has ever run: a plan looks at none of them."""
    counts = []
    async with submit_door(tmp_path, more=joined(4)) as door:
        for waiting in (COUNTED, 1_000):
            await door.submit_many(waiting)
            with counted_calls() as calls:
                await door.submit_brief(COUNTED)
            counts.append(sum(calls.values()) / COUNTED)
    assert counts[1] <= counts[0] * MOST_GROWTH


async def test_a_brief_answer_and_a_batch_cost_less(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        counts = {}
        for way in (door.submit, door.submit_brief, door.submit_many):
            await way(COUNTED)
            with counted_calls() as calls:
                await way(COUNTED)
            counts[way.__name__] = sum(calls.values()) / COUNTED
    assert counts["submit_many"] < counts["submit_brief"] < counts["submit"] <= MOST_CALLS
    assert counts["submit_many"] <= MOST_CALLS_OF_MANY


async def test_a_task_of_an_array_costs_a_fraction_of_a_job(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        await door.submit_array(10)
        with counted_calls() as calls:
            await door.submit_array(1_000)
    assert sum(calls.values()) / 1_000 <= 60
