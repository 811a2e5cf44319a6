"""The page of promises: those in danger first, slack, causes, and the record by team."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import promise_service_pb2 as wire
from dlq.v1.job_service_pb2 import ListJobsResponse
from dlq.v1.promise_service_pb2_grpc import PromiseServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control.deadlines.risks import Risk
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import strict
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.shown_page import ShownPage, shown_page
from support.stored_values import a_job, a_reservation
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
LIGHT = 120_000  # bytes; scripts and styles have the rest of 150 kB
HOSTILE = "<script>alert(1)</script>\x1b[2J"
HOUR = 3600.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def put(house: RpcHouse, number: int, hours: float, **changes: Any) -> Job:
    """A job of an hour, due in so many hours."""
    read, now_s = house.control.published, house.clock.now_s()
    told = {"duration_estimate_s": HOUR, "team": "vision", **changes}
    job = a_job(number, submit_time_s=now_s, steps=strict(hours * HOUR), **told)
    read.all_jobs[JobId(number)] = job
    return job


def ended(house: RpcHouse, number: int, late_s: float, **changes: Any) -> None:
    now_s = house.clock.now_s()
    told = {"state": JobState.COMPLETED, "promised": 0, "end_time_s": now_s - 60.0, **changes}
    due_s = HOUR - 60.0 - late_s
    job = a_job(number, submit_time_s=now_s - HOUR, steps=strict(due_s), team="vision", **told)
    house.control.published.all_jobs[JobId(number)] = job


async def seen(web: WebHouse, query: str = "") -> ShownPage:
    await web.enter()
    answer = await web.browser.get(f"/promises{query}", headers=HTML)
    assert answer.status_code == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text
    return shown_page(answer.text)


async def test_those_at_risk_come_first_with_their_cause_and_their_lateness(
    house: RpcHouse,
) -> None:
    put(house, 1, 5.0, promised=0, name=HOSTILE)
    late = put(house, 2, 0.5, promised=0)
    house.control.published.risks[JobId(2)] = Risk(0.0, "gpu01 is down", late)
    put(house, 3, 0.1, verdict="reach")
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    risky, promised, refused = page.tables[:3]
    assert [row[0] for row in risky[1:]] == ["2"]
    assert risky[1][6].startswith("-00:3")
    assert "at risk: gpu01 is down" in risky[1][-1]
    assert promised[1][:3] == ["1", "<script>alert(1)</script>?[2J", "alice (vision)"]
    assert promised[1][6].startswith(("03:5", "04:00"))
    assert promised[1][7] == "2.0 GPU-hours"
    assert "too early even if it were alone" in refused[1][-1]
    assert "2 deadlines are promised now, and 1 of them is at risk." in page.words
    late_bars = [one for _, one in page.tags if one.get("class") == "late"]
    assert len(late_bars) == 2


async def test_the_record_counts_by_team_and_says_the_goal(house: RpcHouse) -> None:
    ended(house, 1, -60.0)
    ended(house, 2, 120.0)
    ended(house, 3, -60.0, promised=None, verdict="broken")
    ended(house, 4, -60.0, state=JobState.CANCELLED)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    kept = page.tables[-1]
    assert kept[1] == ["vision", "1", "1", "1", "33% below the goal"]
    assert "99% kept" in page.words
    missed = next(one for one in page.tables if one[0][0] == "Job")
    assert {row[0] for row in missed[1:]} == {"2", "3"}
    assert "missed by 0:02:00" in page.words


async def test_a_user_sees_own_promises_alone(house: RpcHouse) -> None:
    put(house, 1, 5.0, promised=0, user="bob", name="secret")
    ended(house, 2, 120.0, user="bob", name="secret")
    put(house, 3, 5.0, promised=0)
    async with web_house(house) as web:
        page = await seen(web)
    assert "secret" not in page.words
    assert "1 deadline is promised now, and none of them is at risk." in page.words
    assert page.column("Job") == ["3"]


async def test_many_jobs_come_by_the_page(house: RpcHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_web.pages.promises.MOST_ROWS", 2)
    for number in (1, 2, 3):
        put(house, number, 5.0, promised=0)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        first = await seen(web)
        second = await seen(web, "?cursor=2")
    assert "/promises?cursor=2" in first.links
    assert second.column("Job") == ["3"]
    assert "Kept, by team" not in second.words


async def test_a_full_page_is_light(house: RpcHouse) -> None:
    for number in range(1, 400):
        job = put(house, number, 0.5, promised=0, name="n" * 60)
        house.control.published.risks[JobId(number)] = Risk(0.0, "gpu01 is down; " * 4, job)
    for number in range(400, 460):
        ended(house, number, 120.0, name="n" * 60)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get("/promises", headers=HTML)
    assert len(answer.content) <= LIGHT
    assert "At risk (100+)" in shown_page(answer.text).words


async def test_more_at_risk_than_are_named_first_are_shown_as_such_all_the_same(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_master.rpc.jobs.promises.MOST_ENDANGERED", 1)
    for number in (1, 2):
        job = put(house, number, 0.5, promised=0)
        house.control.published.risks[JobId(number)] = Risk(0.0, "gpu01 is down", job)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert sorted(page.column("Job")) == ["1", "2"]
    assert "At risk (2)" in page.words


async def test_without_deadlines_the_page_says_how_to_ask_for_one(house: RpcHouse) -> None:
    async with web_house(house) as web:
        page = await seen(web)
    assert "dlq submit --deadline 8h" in page.words
    assert "No node is reserved" in page.words


async def test_reservations_are_those_of_the_command_line(house: RpcHouse) -> None:
    house.control.published.all_reservations["m1"] = a_reservation("m1")
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert page.column("Id") == ["m1"]


@pytest.mark.parametrize(
    "wrong", [wire.ListPromisesRequest(page_size=-1), wire.ListPromisesRequest(page_token="x")]
)
async def test_a_page_that_cannot_be_is_refused(
    house: RpcHouse, wrong: wire.ListPromisesRequest
) -> None:
    stub = PromiseServiceStub(house.channel_as("alice", Role.USER))
    status = await refusal(stub.ListPromises(wrong, timeout=DEADLINE_S))
    assert status.name == "INVALID_ARGUMENT"


async def test_programs_read_the_same(house: RpcHouse) -> None:
    put(house, 1, 5.0, promised=0)
    ended(house, 2, 120.0)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        told = (await web.browser.get("/v1/promises", headers=web.program())).json()
    assert [one["job_id"] for one in told["jobs"]] == ["1"]
    assert told["records"] == [
        {"team": "vision", "kept_count": 0, "missed_count": 1, "broken_count": 0}
    ]
    assert (told["kept_target"], told["record_from_time"]) == (0.99, None)


def test_rows_of_lists_of_jobs_are_rows_of_promises() -> None:
    number = ListJobsResponse.JOBS_FIELD_NUMBER
    assert number == wire.ListPromisesResponse.JOBS_FIELD_NUMBER
