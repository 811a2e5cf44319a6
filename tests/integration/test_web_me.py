"""The first page before a master's door: dangers, ends and their reasons, and a kept answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import EndReason, JobState
from dlq_master.model.nodes.node import Gpu, NodeState
from dlq_master.planner.forecasts import Range, StartEstimate
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        for number in range(3):
            request = wire.SubmitJobRequest(request_id=f"r{number}")
            request.spec.command.append("/bin/true")
            request.spec.resources.gpu_count = 1
            await stub.SubmitJob(request, timeout=DEADLINE_S)
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def text_of(web: WebHouse, **query: str) -> str:
    answer = await web.browser.get("/", params=query, headers=HTML)
    assert answer.status_code == 200
    return answer.text


def end(house: RpcHouse, number: int, **facts: Any) -> None:
    jobs = house.control.published.all_jobs
    jobs[JobId(number)] = jobs[JobId(number)]._replace(
        state=JobState.FAILED, end_reason=EndReason.USER_ERROR, exit_code=3, **facts
    )


async def test_what_ended_says_why_and_the_last_comes_first(house: RpcHouse, web: WebHouse) -> None:
    now_s = house.clock.now_s()
    end(house, 1, end_time_s=now_s - 60)
    end(house, 2, end_time_s=now_s - 3600)
    text = await text_of(web)
    ended = text[text.index("Ended since yesterday") :]
    assert re.findall(r'href="/jobs/(\d)"', ended) == ["1", "2"]
    assert "user_error, exit 3" in ended
    assert "Ended since yesterday (2)" in text
    assert "Waiting (1)" in text


async def test_news_of_a_part_of_the_jobs_say_so(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "are told here of 2 of your jobs that live, not of all"
    assert words not in await text_of(web)
    monkeypatch.setattr("dlq_web.pages.me.MOST_ROWS", 2)
    assert words in await text_of(web)


async def test_the_next_start_is_told(house: RpcHouse, web: WebHouse) -> None:
    now_s = house.clock.now_s()
    house.control.published.start_ranges[JobId(3)] = Range(now_s + 60, now_s + 600, now_s + 900)
    text = await text_of(web)
    assert 'likely to be <a href="/jobs/3">job 3</a>: ≈ in 9m' in text


async def test_the_twin_is_asked_for_once_a_minute(house: RpcHouse, web: WebHouse) -> None:
    nodes = house.control.published.all_nodes
    gpus = tuple(Gpu(index=index, gpu_type="h100-80gb") for index in range(4))
    nodes[NodeId("gpu01")] = nodes[NodeId("gpu01")]._replace(gpus=gpus, state=NodeState.UP)
    now_s = house.clock.now_s()
    start = Range(now_s, now_s + 1, now_s + 2)
    house.foresight.told = StartEstimate(now_s, start, start, "limit")
    assert not house.foresight.asked
    await text_of(web)
    assert not house.foresight.asked
    text = await text_of(web, length="2h")
    assert "A job of 2h would start now with at most 4 GPUs." in text
    asked = len(house.foresight.asked)
    assert 0 < asked <= 6
    assert await text_of(web, length="2h") == text
    assert len(house.foresight.asked) == asked


async def test_a_wrong_length_is_refused(web: WebHouse) -> None:
    answer = await web.browser.get("/", params={"length": "<b>"}, headers=HTML)
    assert answer.status_code == 400
    assert "<b>" not in answer.text
