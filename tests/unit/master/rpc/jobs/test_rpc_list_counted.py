"""The Python calls of a list, counted: of jobs that have not changed nobody looks at each one."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from dlq.v1 import job_service_pb2 as wire
from dlq_common.daemon.logs import configure_logging
from support.counted_calls import counted_calls
from support.fake_clock import FakeClock
from support.submit_door import submit_door

JOBS = 2_000
MOST_CALLS = 1.5  # a job; a look at each one costs 19
LIST = wire.ListJobsRequest(page_size=10_000)


@pytest.fixture(autouse=True)
def _logs_as_in_a_master() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logging(FakeClock(), stream=io.StringIO(), as_json=True)
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({}, JOBS),
        ({"ended_within_seconds": 3600}, JOBS),
        ({"states": ["queued", "pending"]}, JOBS),
        ({"states": ["held"]}, 0),
        ({"queue": "other"}, 0),
        ({"user": "*"}, JOBS),
    ],
)
async def test_a_list_looks_at_blocks_and_not_at_each_job(
    tmp_path: Path, words: dict[str, object], found: int
) -> None:
    async with submit_door(tmp_path) as door:
        await door.submit_array(JOBS)
        request = wire.ListJobsRequest(page_size=10_000, **words)  # type: ignore[arg-type] # of each kind
        first = wire.ListJobsResponse.FromString(await door.call("ListJobs", request))
        with counted_calls() as calls:
            again = wire.ListJobsResponse.FromString(await door.call("ListJobs", request))
    assert len(first.jobs) == found
    assert first == again
    assert sum(calls.values()) <= MOST_CALLS * JOBS


async def test_a_list_after_an_accepted_job_shows_it(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        for count in range(1, 100):
            await door.submit(1)
            listed = wire.ListJobsResponse.FromString(await door.call("ListJobs", LIST))
            assert len(listed.jobs) == count
            assert listed.jobs[-1].wait_code
