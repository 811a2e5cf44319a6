"""Calls about arrays with large scripts, and about many names: each part is read once, and all that
takes long is counted for the slices of the loop.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import InvalidRequest
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.respec import LONGEST_TOLD
from support.counted_calls import counted_calls
from support.submit_door import SubmitDoor, submit_door

TASKS = 300
SPEC = "store/reader.py:spec"  # one is read from the disk, and parsed
SCRIPT = "#!/bin/sh\n" + "x" * 100_000


async def _scripts(door: SubmitDoor) -> None:
    spec = door._spec()
    del spec.command[:]
    spec.script = SCRIPT
    spec.array.ranges.add(first=0, last=TASKS - 1)
    await door.call("SubmitJob", wire.SubmitJobRequest(request_id="array", spec=spec))


async def test_a_list_with_details_reads_the_spec_of_an_array_once(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        await _scripts(door)
        request = wire.ListJobsRequest(with_details=True)
        with counted_calls() as calls:
            found = wire.ListJobsResponse.FromString(await door.call("ListJobs", request))
    assert [detail.has_script for detail in found.details] == [True] * TASKS
    assert not any(detail.spec.script or detail.spec.environment for detail in found.details)
    assert all(detail.spec.resources.gpu_count == 8 for detail in found.details)
    assert calls[SPEC] == 1


@pytest.mark.parametrize("sizes", [(), (4, 8)])
async def test_an_update_of_an_array_reads_its_spec_at_most_once(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    async with submit_door(tmp_path) as door:
        await _scripts(door)
        request = wire.UpdateJobRequest(request_id="update", job_id="1", nice=7)
        if sizes:
            request.elastic.gpu_counts.extend(sizes)
        with counted_calls() as calls:
            answer = wire.UpdateJobResponse.FromString(await door.call("UpdateJob", request))
    assert {job.nice for job in answer.jobs} == {7}
    assert len(answer.jobs) == TASKS
    assert calls[SPEC] <= bool(sizes)


async def test_steps_of_all_running_jobs_are_no_look_at_those_that_wait(tmp_path: Path) -> None:
    async with submit_door(tmp_path) as door:
        await door.submit_array(2_000)
        await door.call("ListSteps", wire.ListStepsRequest())
        with counted_calls() as calls:
            await door.call("ListSteps", wire.ListStepsRequest())
    assert sum(calls.values()) < 1_500


async def test_names_of_some_tasks_cost_a_look_at_these_and_not_at_the_array(
    tmp_path: Path,
) -> None:
    names = [f"1_[{first}-{first + 19}]" for first in range(0, 2_000, 20)]
    async with submit_door(tmp_path) as door:
        await door.submit_array(2_000)
        with counted_calls() as calls:
            request = wire.ListJobsRequest(job_ids=names, page_size=1)
            await door.call("ListJobs", request)
    assert calls["control/read_model/published.py:job"] <= 2 * 2_000 + 2 * len(names)


@pytest.mark.parametrize("name", ["1", "1_[0-1999]"])
async def test_a_call_for_one_job_looks_at_no_whole_array(tmp_path: Path, name: str) -> None:
    """Tasks that ended long ago are on the disk. Reading all of them would hold up everybody."""
    async with submit_door(tmp_path) as door:
        await door.submit_array(2_000)
        read = door.loop.published
        with counted_calls() as calls, pytest.raises(InvalidRequest, match="are 2000 jobs"):
            visible_job(read, Caller("alice", "operator"), name)
    assert calls["control/read_model/published.py:job"] < 20


async def test_a_change_of_the_specs_of_an_array_is_worked_out_once(tmp_path: Path) -> None:
    """Also the second time, when each task has a spec of its own."""
    async with submit_door(tmp_path) as door:
        await door.submit_array(TASKS)
        names: list[str] = []
        for number in range(2):
            request = wire.UpdateJobRequest(request_id=f"change-{number}", job_id="1")
            names = [f"node{number}-{place:04d}x" for place in range(0, 2_000, 2)]
            request.spec_change.excluded_nodes.node_ids.extend(names)
            with counted_calls() as calls:
                raw = await door.call("UpdateJob", request)
            answer = wire.UpdateJobResponse.FromString(raw)
            assert calls["rpc/specs/respec.py:respecified"] == 1
            assert len(answer.changes) == TASKS
            assert max(len(change.after) for change in answer.changes) <= LONGEST_TOLD
        stored = {door.loop.published.spec(JobId(-job)) for job in range(2, TASKS + 2)}
        (spec,) = map(JobSpec.FromString, stored)
        assert list(spec.resources.excluded_node_ids) == names
