"""Lists of the HTTP API and of the queue page: the master filters, orders and counts them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import node_service_pb2
from dlq_common.errors import InvalidRequest
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from dlq_web.api.lists import JOB_LIST, NODE_LIST, ORDERS, refuse_unknown
from support.rpc_house import RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
MANY = 450


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        jobs = house.control.published.all_jobs
        for number in range(1, MANY + 1):
            user = "alice" if number % 3 else "bob"
            job = Job(
                JobId(number), user, f"train-{number % 7}", Request(gpus=number % 8 + 1),
                float(number), state=JobState.QUEUED if number % 2 else JobState.HELD,
                team="vision" if number % 5 == 0 else "",
            )  # fmt: skip
            jobs[job.job_id] = job
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        yield web


async def told(web: WebHouse, path: str, **params: Any) -> Any:
    answer = await web.browser.get(path, params=params, headers=web.program())
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_pages_in_an_order_are_the_set_whose_total_each_tells(web: WebHouse) -> None:
    found, cursor = list[Any](), ""
    while True:
        page = await told(
            web, "/v1/jobs", user="*", order="-gpus", q="train-3", limit=20, cursor=cursor
        )
        found += page["jobs"]
        assert page["total"] == sum(number % 7 == 3 for number in range(1, MANY + 1))
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert len(found) == page["total"]
    keys = [(-job["resources"]["gpu_count"], -int(job["job_id"])) for job in found]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ({"team": "vision"}, 90),
        ({"state": "held"}, 225),
        ({"user": "bob", "q": "TRAIN-1 bo"}, 21),
        ({"q": "17"}, 1),
        ({"gpu_type": "H100"}, 0),
        ({"node": "gpu01"}, 0),
        ({"q": "%"}, 0),
        ({"limit": "1"}, MANY),
    ],
)
async def test_each_filter_counts_what_it_lists(
    web: WebHouse, words: dict[str, str], count: int
) -> None:
    answer = await told(web, "/v1/jobs", **{"user": "*", **words})
    assert answer["total"] == count
    assert len(answer["jobs"]) == min(count, int(words.get("limit", "1000")))


async def test_nodes_are_filtered_and_counted(web: WebHouse) -> None:
    assert (await told(web, "/v1/nodes", q="gpu01"))["total"] == 1
    answer = await told(web, "/v1/nodes", state="up", limit="1")
    assert (answer["total"], len(answer["nodes"])) == (2, 1)
    assert (await told(web, "/v1/nodes", flag="draining,cordoned"))["nodes"] == []
    assert (await told(web, "/v1/gpus", q="nothing"))["gpus"] == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?order=colour", "order"),
        ("/v1/jobs?order=gpus&cursor=17", "cursor"),
        ("/v1/jobs?q=a+b+c+d+e+f+g+h+i", "q"),
        ("/v1/nodes?state=upp", "state"),
        ("/v1/nodes?flag=drained", "flag"),
        ("/v1/nodes?order=name", "order"),
    ],
)
async def test_a_list_that_nobody_understands_is_refused(
    web: WebHouse, path: str, field: str
) -> None:
    answer = await web.browser.get(path, headers=web.program())
    assert (answer.status_code, answer.json()["field"]) == (400, field)


@pytest.mark.parametrize(
    "path", ["/v1/reservations", "/v1/forecast", "/v1/version", "/v1/users", "/v1/policy"]
)
async def test_reads_of_what_is_to_come_and_of_operators(web: WebHouse, path: str) -> None:
    assert (await told(web, path))["schema"] == "dlq.v1"


def test_a_master_of_before_that_passes_over_a_filter_is_not_believed() -> None:
    """It knows no total, which every list asks for."""
    asked = wire.ListJobsRequest(text="train", with_total=True, states=["held"])
    with pytest.raises(InvalidRequest, match="former release"):
        refuse_unknown(asked, wire.ListJobsResponse())
    refuse_unknown(asked, wire.ListJobsResponse(total_count=0))
    asked.text = ""
    refuse_unknown(asked, wire.ListJobsResponse())
    nodes = node_service_pb2.ListNodesRequest(states=["up"], with_total=True)
    with pytest.raises(InvalidRequest, match="former release"):
        refuse_unknown(nodes, node_service_pb2.ListNodesResponse())


def test_the_parameters_are_fields_of_the_requests() -> None:
    for params, request in ((JOB_LIST, wire.ListJobsRequest), (NODE_LIST, _nodes_request())):
        for param in params:
            words = {"order": "-gpus", "limit": "5", "since": "2d", "state": "running"}
            param.enter(request(), words.get(param.name, "word"))
    with pytest.raises(InvalidRequest, match="did you mean"):
        next(one for one in JOB_LIST if one.name == "order").enter(SimpleNamespace(), "gpu")
    assert "gpus" in ORDERS


def _nodes_request() -> Any:
    return node_service_pb2.ListNodesRequest


# --- pages ----------------------------------------------------------------------------------------


async def shown(web: WebHouse, path: str, **params: str) -> str:
    await web.enter()
    answer = await web.browser.get(path, params=params or None, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r'<td><a href="/jobs/(\d+)">', text)]


async def test_the_queue_is_ordered_by_its_headings_and_tells_its_total(web: WebHouse) -> None:
    text = await shown(web, "/jobs")
    assert "200 of 450" in text
    assert 'aria-sort="ascending"><a href="/jobs?order=-number">Job' in text
    by_gpus = re.search(r'aria-sort="none"><a href="([^"]+)">GPUs', text)
    assert by_gpus is not None
    text = await shown(web, by_gpus[1].replace("&amp;", "&"))
    assert 'aria-sort="ascending"><a href="/jobs?order=-gpus">GPUs' in text
    assert numbers(text)[:3] == [8, 16, 24]  # of one GPU
    following = re.search(r'rel="next" href="([^"]+)"', text)
    assert following is not None
    more = await shown(web, following[1].replace("&amp;", "&"))
    assert not set(numbers(text)) & set(numbers(more))
    assert "cursor" not in more[more.index("<thead") : more.index("</thead")]


async def test_a_search_that_may_mean_several_things_shows_them(web: WebHouse) -> None:
    text = await shown(web, "/search", q="gpu")
    assert 'href="/nodes/gpu01"' in text
    assert 'href="/nodes/gpu02"' in text
    text = await shown(web, "/search", q="bob")
    assert '<a href="/jobs?user=bob">bob</a>' in text
    assert "20 of 150" in text
    assert numbers(text)[0] == MANY  # the newest first
    assert 'href="/jobs?q=bob"' in text
    assert "No job, node or user" in await shown(web, "/search", q="<b>x")
    assert "Type a job number" in await shown(web, "/search", q=" ")


async def test_where_other_users_jobs_are_hidden_one_finds_ones_own(house: RpcHouse) -> None:
    house.control.published.others_shown = "hidden"
    async with web_house(house, "bob") as web:
        text = await shown(web, "/search", q="train")
    assert "20 of 150" in text
    assert "alice" not in text


async def test_where_other_users_jobs_are_hidden_the_queue_is_ones_own(house: RpcHouse) -> None:
    house.control.published.others_shown = "hidden"
    async with web_house(house, "bob") as web:
        for asked in ({}, {"user": "*"}, {"user": ""}):
            text = await shown(web, "/jobs", **asked)
            assert "train" in text
            assert "alice" not in text
            assert 'name="user" value=""' in text, "the form says so"
        refused = await web.browser.get("/jobs", params={"user": "alice"})
        assert refused.status_code == 403
