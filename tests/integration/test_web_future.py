"""The page of the next hours and its read: bounded, with a tag, redacted, and asked for rarely."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control.forecast.accuracy import Quality
from dlq_master.model.ids import JobId, NodeId
from dlq_master.planner.forecasts import Range
from dlq_master.store.tables.tenants import Reservation
from dlq_web.line.calls import MasterLine
from dlq_web.pages.foresee import future
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import shared_web_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        for name, count in (("alice", 2), ("bob", 1)):
            stub = JobServiceStub(house.channel_as(name, Role.USER))
            for number in range(count):
                request = wire.SubmitJobRequest(request_id=f"r{number}")
                request.spec.command.append("/bin/true")
                request.spec.name = "<b>secret</b>"
                request.spec.resources.gpu_count = 2
                request.spec.time_limit_duration.seconds = 3600
                await stub.SubmitJob(request, timeout=DEADLINE_S)
        now_s = house.clock.now_s()
        house.control.place(JobId(1), "gpu01")
        house.control.place(JobId(3), "gpu02")
        ranges = house.control.published.start_ranges
        ranges[JobId(2)] = Range(now_s + 600, now_s + 1200, now_s + 2400)
        held = Reservation("m1", (NodeId("gpu02"),), now_s + 60, now_s + 999, "disks", "olga", 0.0)
        house.control.published.all_reservations["m1"] = held
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def drawn(web: WebHouse, **query: str | int) -> Any:
    answer = await web.browser.get("/future", params={"as": "json", **query})
    assert answer.status_code == 200
    return answer.json()


async def test_a_picture_has_what_runs_what_starts_and_what_is_reserved(web: WebHouse) -> None:
    told = await drawn(web)
    assert [(bar[1], bar[7]) for bar in told["bars"]] == [
        ("reserved", ""), ("runs", "1"), ("runs", ""), ("starts", "2"),
    ]  # fmt: skip
    _, _, begin, _, early, late, words, _ = told["bars"][3]
    assert early < begin < late
    assert words.startswith("2 <b>secret</b> (alice)")


async def test_another_users_jobs_stay_redacted(web: WebHouse) -> None:
    told = await drawn(web)
    (others,) = [bar for bar in told["bars"] if bar[6].startswith("3")]
    assert others[6:] == ["3 (bob), 1 GPU", ""]
    text = (await web.browser.get("/future", headers=HTML)).text
    assert "3 (bob)" in text
    assert "<b>secret" not in text
    assert "/jobs/3" not in text


async def test_others_waiting_jobs_take_no_place_of_ones_own(
    house: RpcHouse, web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no forecast for this user, and the list is bounded."""
    monkeypatch.setattr(future, "MOST_JOBS", 1)
    jobs = house.control.published.all_jobs
    jobs[JobId(1)] = jobs[JobId(1)]._replace(user="bob", live_attempt=None)
    told = await drawn(web)
    assert "2" in [bar[7] for bar in told["bars"]]


async def test_an_operator_sees_all_of_it(house: RpcHouse) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        told = await drawn(web)
    assert "3" in [bar[7] for bar in told["bars"]]


async def test_one_user_and_lanes_of_nodes(web: WebHouse) -> None:
    told = await drawn(web, user="alice", by="nodes")
    assert told["lanes"] == ["gpu01", "gpu02", "likely starts"]
    told = await drawn(web, team="nobody")
    assert [bar[1] for bar in told["bars"]] == ["reserved"]


async def test_the_same_picture_again_is_no_answer(web: WebHouse) -> None:
    query = {"as": "json", "from": str(int(1e9)), "span": "604800"}
    first = await web.browser.get("/future", params=query)
    tag = first.headers["etag"]
    for told in (tag, f"W/{tag}"):
        again = await web.browser.get("/future", params=query, headers={"if-none-match": told})
        assert (again.status_code, again.content) == (304, b"")


async def test_moving_about_asks_the_master_once(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    call = MasterLine.call

    async def counted(line: MasterLine, method: Any, *rest: Any) -> Any:
        asked.append(method.path)
        return await call(line, method, *rest)

    monkeypatch.setattr(MasterLine, "call", counted)
    await drawn(web)
    first = len(asked)
    for span in (600, 3600, 604800):
        await drawn(web, span=span)
        await drawn(web, by="nodes")
    assert (first, len(asked)) == (3, 3)


@pytest.mark.parametrize(
    ("query", "field"),
    [({"by": "people"}, "by"), ({"span": "1"}, "span"), ({"pixels": "9999"}, "pixels"),
     ({"from": "-1"}, "from"), ({"from": "x"}, "from")],
)  # fmt: skip
async def test_a_wrong_part_of_time_names_its_field(
    web: WebHouse, query: dict[str, str], field: str
) -> None:
    answer = await web.browser.get("/future", params={"as": "json", **query})
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_the_page_has_the_same_as_a_table_and_the_measured_error(
    house: RpcHouse, web: WebHouse
) -> None:
    house.foresight.measured = Quality(12, 200.0, 900.0, 30.0, 0.75, 3600.0)
    text = (await web.browser.get("/future", headers=HTML)).text
    assert "<canvas" in text
    assert text.count("<td>starts</td>") == 1
    assert '<a href="/jobs/2">2 &lt;b&gt;' in text
    assert "<dt>error, median</dt><dd>3m20s</dd>" in text
    assert "<dd>75%</dd>" in text
    assert '<time datetime="' in text


async def test_an_empty_cluster_says_why_there_is_nothing(house: RpcHouse) -> None:
    house.control.published.all_jobs.clear()
    house.control.published.all_reservations.clear()
    async with web_house(house, "bob") as web:
        await web.enter()
        text = (await web.browser.get("/future", headers=HTML)).text
    assert "Nothing runs" in text
    assert "<canvas" not in text


async def test_a_master_that_is_away_is_told(house: RpcHouse, web: WebHouse) -> None:
    await house.server.stop(0.0)
    assert (await web.browser.get("/future", headers=HTML)).status_code == 503
    assert (await web.browser.get("/future?as=json")).status_code == 503


async def test_the_next_owner_of_a_name_sees_nothing_of_the_former(
    house: RpcHouse, tmp_path: Path
) -> None:
    async with shared_web_house(house, tmp_path) as web:
        former = await web.signed_in("alice")
        query = {"as": "json", "user": "alice"}
        assert "secret" in (await former.get("/future", params=query)).text
        house.control.add_user("alice", "user")  # given again
        fresh = await web.signed_in("alice")
        told = await fresh.get("/future", params=query)
        assert told.status_code == 200
        assert "secret" not in told.text
