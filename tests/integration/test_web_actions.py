"""Orders from pages to one job and to many: each job says what became of it, and once is once."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.errors import Unavailable, WorkWouldBeLost
from dlq_common.identity.pki import Role
from dlq_master.control import stimuli as say
from dlq_web.door.guard import CSRF_HEADER
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
JOBS = 23


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        for number in range(JOBS):
            request = wire.SubmitJobRequest(request_id=f"r{number}")
            request.spec.command.append("/bin/true")
            request.spec.resources.gpu_count = 1
            await stub.SubmitJob(request, timeout=DEADLINE_S)
        house.control.asked.clear()
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def csrf(web: WebHouse) -> dict[str, str]:
    text = (await web.browser.get("/", headers=HTML)).text
    found = re.search(r'<meta name="csrf" content="([^"]+)"', text)
    assert found is not None
    return {CSRF_HEADER: found[1]}


async def act(web: WebHouse, **body: Any) -> tuple[int, Any]:
    told = {"key": "k1", **body}
    answer = await web.browser.post("/act", content=json.dumps(told), headers=await csrf(web))
    return answer.status_code, answer.json()


def asked(house: RpcHouse, kind: type) -> list[Any]:
    return [one for one in house.control.asked if isinstance(one, kind)]


async def test_one_order_to_some_jobs_tells_each(house: RpcHouse, web: WebHouse) -> None:
    status, told = await act(web, order="hold", jobs=["1", "3", "99"])
    assert status == 200
    assert told["command"] == "dlq hold 1 3 99"
    assert [(one["job"], one["done"], one["told"]) for one in told["jobs"]] == [
        ("1", True, "held (user)"),
        ("3", True, "held (user)"),
        ("99", False, "there is no job 99"),
    ]


async def test_the_same_order_again_changes_nothing(house: RpcHouse, web: WebHouse) -> None:
    first = await act(web, order="hold", jobs=["1", "2"])
    again = await act(web, order="hold", jobs=["1", "2"])
    assert first == again
    assert {one.request_id for one in asked(house, say.HoldJob)} == {"k1.1", "k1.2"}
    versions = {job.version for number, job in house.control.published.all_jobs.items()}
    assert max(versions) == min(versions) + 1


@pytest.mark.parametrize("order", ["hold", "release", "pause", "resume", "requeue", "cancel"])
async def test_every_order_is_the_call_of_its_command(
    house: RpcHouse, web: WebHouse, order: str
) -> None:
    house.control.answers[say.RequeueJob] = lambda ask: house.control._edit(ask)
    status, told = await act(web, order=order, jobs=["2"])
    assert (status, told["jobs"][0]["done"]) == (200, True)
    kind = type(house.control.asked[-1]).__name__
    assert kind == f"{order.capitalize()}Job"


async def test_many_are_cancelled_by_one_call(house: RpcHouse, web: WebHouse) -> None:
    status, told = await act(web, order="cancel", jobs=["1", "2", "77"])
    assert status == 200
    assert [one["done"] for one in told["jobs"]] == [True, True, False]
    assert told["jobs"][0]["told"] == "cancelled"
    assert asked(house, say.CancelJob) == []


async def test_more_than_twenty_need_their_number(house: RpcHouse, web: WebHouse) -> None:
    jobs = [str(number) for number in range(1, 22)]
    status, told = await act(web, order="hold", jobs=jobs, count=20)
    assert (status, told["field"]) == (400, "count")
    assert asked(house, say.HoldJob) == []
    status, told = await act(web, order="hold", jobs=jobs, count=21)
    assert (status, len(told["jobs"])) == (200, 21)


async def test_a_job_whose_work_would_be_lost_asks_first(house: RpcHouse, web: WebHouse) -> None:
    def paused(ask: say.PauseJob) -> Any:
        if not ask.accept_loss:
            raise WorkWouldBeLost("job 1 has never saved")
        return house.control._PauseJob(ask)

    house.control.answers[say.PauseJob] = paused
    _, told = await act(web, order="pause", jobs=["1"])
    assert told["jobs"] == [
        {"job": "1", "told": "job 1 has never saved", "done": False, "loses": True}
    ]
    _, told = await act(web, order="pause", jobs=["1"], accept_loss=True, key="k2")
    assert told["jobs"][0]["told"] == "held (paused)"


async def test_a_master_away_refuses_all_of_it(house: RpcHouse, web: WebHouse) -> None:
    headers = await csrf(web)
    house.control.failure = Unavailable("the master is going")
    answer = await web.browser.post(
        "/act", json={"order": "hold", "jobs": ["1", "2"], "key": "k"}, headers=headers
    )
    assert answer.status_code == 503


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"order": "explode", "jobs": ["1"]}, "order"),
        ({"order": "hold", "jobs": []}, "jobs"),
        ({"order": "hold", "jobs": [1]}, "jobs"),
        ({"order": "hold", "jobs": "1"}, "jobs"),
        ({"order": "hold", "jobs": ["\ud800"]}, "jobs"),
        ({"order": "hold", "jobs": [str(one) for one in range(1001)], "count": 1001}, "jobs"),
        ({"order": "hold", "jobs": ["1"], "key": ""}, "key"),
        ({"order": "hold", "jobs": ["1"], "key": "k" * 41}, "key"),
        ({"order": "hold", "jobs": ["1"], "count": True}, "count"),
        ({"order": "hold", "jobs": ["1"], "force": True}, "force"),
    ],
)
async def test_a_wrong_order_names_its_field(
    house: RpcHouse, web: WebHouse, body: dict[str, Any], field: str
) -> None:
    status, told = await act(web, **body)
    assert (status, told["field"]) == (400, field)
    assert asked(house, say.HoldJob) == []


async def test_an_order_needs_the_token_of_the_session(web: WebHouse) -> None:
    answer = await web.browser.post("/act", json={"order": "hold", "jobs": ["1"], "key": "k"})
    assert answer.status_code == 403


async def test_lists_have_boxes_for_jobs_that_the_reader_may_change(
    house: RpcHouse, web: WebHouse
) -> None:
    for path in ("/", "/jobs"):
        text = (await web.browser.get(path, headers=HTML)).text
        assert 'name="job" value="1" aria-label="Choose job 1"' in text
        assert 'data-action="cancel" disabled' in text
    async with web_house(house, "bob") as other:
        await other.enter()
        text = (await other.browser.get("/jobs", headers=HTML)).text
    assert ">1</a>" in text
    assert 'name="job"' not in text
