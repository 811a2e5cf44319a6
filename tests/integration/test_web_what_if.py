"""What would be otherwise, as a page: before and after, one question a person, and refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq_common.identity.pki import Role
from dlq_master.control.forecast.forecasts import NOT_SUBMITTED
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.jobs.reward import strict
from dlq_master.planner.forecasts import Changes, Compared, Forecast, Range, StartEstimate
from support.rpc_house import RpcHouse, rpc_house
from support.shown_page import ShownPage, shown_page
from support.stored_values import a_job
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
HOUR = 3600.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def at(house: RpcHouse, hours: float) -> Range:
    """So many hours from now."""
    now_s = house.clock.now_s()
    return Range(now_s + hours * HOUR, now_s + hours * HOUR, now_s + (hours + 1) * HOUR)


def foresee(house: RpcHouse) -> None:
    """Job 1 waits, and would wait longer. Job 2 runs, has a deadline, and would start again."""
    now_s, read = house.clock.now_s(), house.control.published
    read.all_jobs[JobId(1)] = a_job(1)
    due = strict(3 * HOUR)
    running = {"state": JobState.QUEUED, "live_attempt": 1, "attempts": 1}
    read.all_jobs[JobId(2)] = a_job(2, submit_time_s=now_s, steps=due, promised=0, **running)
    new = JobId(NOT_SUBMITTED)
    now = Forecast(now_s, {JobId(1): at(house, 2)}, math.inf, 7, ends={JobId(2): at(house, 1)})
    starts = {JobId(1): at(house, 5), JobId(2): at(house, 4), new: at(house, 1)}
    then = Forecast(now_s, starts, math.inf, 7, ends={JobId(2): at(house, 6), new: at(house, 2)})
    house.foresight.compared = Compared(now, then)


async def seen(web: WebHouse, query: str) -> ShownPage:
    await web.enter()
    answer = await web.browser.get(f"/what-if{query}", headers=HTML)
    assert answer.status_code == 200, answer.text
    assert "<script>alert" not in answer.text
    return shown_page(answer.text)


async def test_before_and_after_stand_side_by_side_with_the_command_to_copy(
    house: RpcHouse,
) -> None:
    foresee(house)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?lose=gpu01&drain=gpu02&add_nodes=2x8:h100&add_job=8:1h:4h")
    command = "dlq what-if --add-nodes 2x8:h100 --drain gpu02 --lose gpu01 --add-job 8:1h:4h"
    assert "no node has GPUs of type" in page.words
    assert command in page.words
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?lose=gpu01&drain=gpu02&add_job=8:1h:4h")
    rows = {row[0]: row[1:] for row in page.tables[0][1:]}
    assert rows["1"][0].startswith("≈1h59m") or rows["1"][0].startswith("≈2h00m")
    assert rows["2"][0] == "runs"
    assert rows["2"][1].startswith("again ≈")
    assert rows["2"][2] == "kept now, late then"
    assert rows["new-1"][0] == "-"
    assert rows["new-1"][2] == "kept"
    assert "deadlines kept 1 now, 0 then, of 1" in page.words
    assert "/jobs/1" in page.links
    assert "/jobs/new-1" not in page.links
    assert page.having("data-still"), "or each renewal asks the twin again"
    changes = next(one for one in house.foresight.asked if isinstance(one, Changes))
    assert (changes.lost, changes.closed) == (("gpu01",), ("gpu02",))
    (come,) = changes.come
    assert (come.job_id, come.request.gpus, come.duration_estimate_s) == (NOT_SUBMITTED, 8, HOUR)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?lose=gpu99", "there is no node gpu99"),
        ("?add_nodes=4", "'4' is no number of nodes"),
        ("?add_job=8", "'8' is no job"),
        ("?add_job=" + "+".join(["1:1h"] * 9), "at most 8 jobs"),
        ("?policy=nope", "nope"),
        ("?lose=%3Cscript%3Ealert(1)", "<script>alert(1)"),
    ],
)
async def test_a_question_that_makes_no_sense_is_answered_in_words(
    house: RpcHouse, query: str, words: str
) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, query)
    assert words in page.words


async def test_a_twin_that_is_away_is_told_of(house: RpcHouse) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?drain=gpu01")
    assert "no forecast: the twin was killed" in page.words


async def test_a_user_asks_for_a_job_of_theirs_and_for_nothing_else(house: RpcHouse) -> None:
    house.foresight.told = StartEstimate(1_000.0, at(house, 2), None, "guess")
    async with web_house(house) as web:
        page = await seen(web, "?add_job=8:1h")
        nodes = await seen(web, "?drain=gpu01")
    assert "would start ≈ in " in page.words
    assert "would end not foreseen" in page.words
    assert "may not call CompareForecasts" in nodes.words


async def test_a_person_has_one_question_on_its_way_and_another_may_ask(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    foresee(house)
    begun, go = asyncio.Event(), asyncio.Event()
    answer = house.foresight.what_if

    async def slow(changes: Changes, patience_s: float) -> Compared:
        begun.set()
        await go.wait()
        return await answer(changes, patience_s)

    monkeypatch.setattr(house.foresight, "what_if", slow)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        first = asyncio.create_task(web.browser.get("/what-if?drain=gpu01", headers=HTML))
        await begun.wait()
        second = await web.browser.get("/what-if?drain=gpu02", headers=HTML)
        assert "your last question is on its way still" in second.text
        go.set()
        assert "Now, and then" in (await first).text
        third = await web.browser.get("/what-if?drain=gpu02", headers=HTML)
        assert "is on its way still" not in third.text


async def test_a_browser_that_leaves_ends_its_question(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(_changes: Changes, _patience_s: float) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(house.foresight, "what_if", endless)

    async def gone(_http: object) -> bool:
        return begun.is_set()

    monkeypatch.setattr("starlette.requests.Request.is_disconnected", gone)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get("/what-if?drain=gpu01", headers=HTML)
        assert answer.status_code == 204
        await asyncio.wait_for(ended.wait(), 30.0)


async def test_the_form_stands_on_the_page_of_promises_too(house: RpcHouse) -> None:
    async with web_house(house) as web:
        await web.enter()
        page = shown_page((await web.browser.get("/promises", headers=HTML)).text)
    assert [one["action"] for one in page.having("action")].count("/what-if") == 1
