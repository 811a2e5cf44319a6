"""The page of a job: everything that is known of it, and nothing that another user may not know."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array, GroupedMember, MemberEnds
from dlq_master.model.nodes.node import Gpu
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        for number in range(2):
            request = wire.SubmitJobRequest(request_id=f"r{number}")
            request.spec.command.append("/bin/true")
            request.spec.resources.gpu_count = 2
            await stub.SubmitJob(request, timeout=DEADLINE_S)
        nodes = house.control.published.all_nodes
        for node_id, node in list(nodes.items()):
            gpu = Gpu(index=0, gpu_type="h100-80gb", memory_bytes=80 << 30)
            nodes[node_id] = node._replace(gpus=(gpu,))
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def text_of(web: WebHouse, path: str = "/jobs/2") -> str:
    answer = await web.browser.get(path, headers=HTML)
    assert answer.status_code == 200
    return answer.text


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>([^<]+)</h2>", text)


async def test_a_waiting_job_says_why_with_a_way_to_the_cause(web: WebHouse) -> None:
    text = await text_of(web)
    assert "Why it does not run" in headings(text)
    assert '<a href="/jobs/1">1</a>' in text
    assert '<a href="/nodes">the nodes</a>' in text
    assert "Output" not in headings(text)
    assert "Its lease" not in headings(text)


async def test_a_running_job_has_its_lease_gpus_output_and_saves(
    house: RpcHouse, web: WebHouse
) -> None:
    house.control.place(JobId(2), "gpu01", "gpu02")
    text = await text_of(web)
    for heading in ("Its lease", "Output", "Its GPUs now", "Attempts", "Its speed",
                    "Checkpoints and work at risk"):  # fmt: skip
        assert heading in headings(text)
    assert "term ends" in text
    assert text.count("<td>h100-80gb</td>") == 2
    assert 'id="rank" type="number" min="0" max="1" value="0"' in text
    assert '<time datetime="' in text
    assert 'data-action="pause"' in text


async def test_a_node_that_has_gone_leaves_its_gpus_out(house: RpcHouse, web: WebHouse) -> None:
    house.control.place(JobId(2), "gpu01", "gpu02")
    del house.control.published.all_nodes["gpu02"]  # type: ignore[arg-type]  # a plain name
    text = await text_of(web)
    assert text.count("<td>h100-80gb</td>") == 1


async def test_an_attempt_that_has_ended_has_no_lease(house: RpcHouse, web: WebHouse) -> None:
    attempt = house.control.place(JobId(2), "gpu01")
    now_s = house.clock.now_s()
    house.control.published.all_attempts[attempt.key] = attempt._replace(
        state=AttemptState.FAILED, ended_time_s=now_s
    )
    text = await text_of(web)
    assert "Its lease" not in headings(text)
    assert "Its GPUs now" not in headings(text)
    assert "Output" in headings(text)


async def test_a_preempted_job_names_the_job_the_rule_and_the_story(
    house: RpcHouse, web: WebHouse
) -> None:
    jobs = house.control.published.all_jobs
    jobs[JobId(2)] = jobs[JobId(2)]._replace(preemptions=1)
    house.control.note("attempt_preempted", job_id=JobId(2), cause="for job 1: <b>its deadline</b>")
    house.control.note("attempt_running", job_id=JobId(2))
    text = await text_of(web)
    assert "Its promise and its GPUs over time" in headings(text)
    assert "for job 1: &lt;b&gt;its deadline&lt;/b&gt;" in text
    assert "attempt_running" not in text


async def test_a_job_of_a_group_shows_the_others_and_how_they_end(
    house: RpcHouse, web: WebHouse
) -> None:
    stub = JobServiceStub(house.channel_as("alice", Role.USER))
    request = wire.SubmitJobRequest(request_id="third")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 2
    await stub.SubmitJob(request, timeout=DEADLINE_S)
    jobs = house.control.published.all_jobs
    del jobs[JobId(1)]  # its number is now that of the group
    parts = (GroupedMember("learner", ends=MemberEnds.ALL), GroupedMember("actor"))
    group = Array(JobId(1), 2, 0, 0, 1, 1, parts)
    for index, job_id in enumerate((JobId(2), JobId(3))):
        jobs[job_id] = jobs[job_id]._replace(array=group, array_index=index)
    text = await text_of(web)
    assert "2 jobs start together" in text
    rows = re.findall(r'<td><a href="/jobs/(\d)">[^<]*</a></td><td>(\w+ \d)</td>', text)
    assert rows == [("2", "learner 0"), ("3", "actor 0")]
    assert "the others are stopped" in text
    assert "the others go on; if it fails, the group has failed" in text


async def test_the_notes_of_hooks_are_drawn_and_harmless(house: RpcHouse, web: WebHouse) -> None:
    assert "Notes of hooks" not in await text_of(web)
    spec = job_pb2.JobSpec.FromString(house.control.published.specs[JobId(2)])
    spec.hook_notes.add(hook="on_submit", field="nice", before="0", after="10")
    spec.hook_notes.add(hook="on_submit", text="<b>closed on Sunday</b>")
    house.control.published.specs[JobId(2)] = spec.SerializeToString()
    text = await text_of(web)
    assert "<li>on_submit changed nice from 0 to 10</li>" in text
    assert "<li>on_submit: &lt;b&gt;closed on Sunday&lt;/b&gt;</li>" in text
