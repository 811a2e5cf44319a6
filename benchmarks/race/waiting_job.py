"""The memory of a waiting job, counted by Python itself: its value alone, and all of a master.

    python -m benchmarks.race.waiting_job [--jobs N] [--json]

The floor is a dictionary of jobs by their ids, each a value of its own that shares all it can. No
master can hold less as long as a job is a tuple. Then a master in this process takes the jobs by
`SubmitJobs`, and looks at each of them, as it does once a second. Its nodes are down, so a job has
two reasons. The growth of the process comes on top: gaps between objects, pages of SQLite, and code
that is mapped again. `make race` measures all of that. Goal (issue 21): 1.5 KiB.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from benchmarks.live.submits import a_spec
from benchmarks.support.crowd import joined
from benchmarks.support.report import Report
from dlq.v1 import job_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_common.daemon.logs import configure_logging
from dlq_master.control.jobs.waits import AT_ONCE
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.placement.scheduling import watch_waits
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_changes import changed
from dlq_master.model.resources import Request
from support.submit_door import SubmitDoor, submit_door

GOAL_BYTES = 1536
MANY = 500  # jobs of a call
NODES = 4
FIRST_ID = 1_000_000  # ids below 257 would cost nothing


def main() -> None:
    """Tell each figure for one job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=5_000)
    report = Report.begin("race.waiting_job", parser)
    configure_logging(SteadyClock(), level="warning", stream=io.StringIO(), as_json=True)
    count = report.options.jobs
    report.figure("its value in a dictionary, the floor", value_bytes(count), "B")
    with tempfile.TemporaryDirectory() as directory:
        held, looked = asyncio.run(_held(Path(directory), count))
    report.figure("a master that has just taken it", held, "B")
    report.figure("a master that knows why it waits", looked, "B", at_most=GOAL_BYTES)
    report.end()


def value_bytes(count: int) -> float:
    """Of the value of one job of so many, which differ in their ids and positions."""
    first = Job(JobId(FIRST_ID), "alice", "queue", Request(gpus=1), 0.0)

    def made() -> object:
        ids = range(FIRST_ID, FIRST_ID + count)
        return {JobId(one): changed(first, {"job_id": one, "sequence": one}) for one in ids}

    return grown(made) / count


def grown(make: Callable[[], object]) -> int:
    """Bytes that Python holds more while the result is there."""
    tracemalloc.start(1)
    kept = make()
    gc.collect()
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return found


async def _held(directory: Path, count: int) -> tuple[float, float]:
    async with submit_door(directory, more=joined(NODES)) as door:
        await _submit(door, MANY)  # what the first jobs bring along
        gc.collect()
        tracemalloc.start(1)
        for _ in range(count // MANY):
            await _submit(door, MANY)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] / count
        state: State = door.loop._state
        for _ in range(2 + (count + MANY) // AT_ONCE):
            loop = door.loop
            watch_waits(Turn(state, loop._records, loop._clock.now_s(), loop._wiring))
        gc.collect()
        looked = tracemalloc.get_traced_memory()[0] / count
        tracemalloc.stop()
    return held, looked


async def _submit(door: SubmitDoor, count: int) -> None:
    request = wire.SubmitJobsRequest(request_id=door._key(), specs=[a_spec()] * count)
    answer = wire.SubmitJobsResponse.FromString(await door.call("SubmitJobs", request))
    assert all(one.job_id for one in answer.jobs)


if __name__ == "__main__":
    main()
