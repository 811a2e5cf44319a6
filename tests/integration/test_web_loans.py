"""The page of loans and rented machines: who sees what, the price of a reclaim, and its token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq_common.errors import Conflict
from dlq_common.identity.pki import Role
from dlq_master.control.loans.state import Followed
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.control.stimuli.loans import Hit, Reclaimed, ReclaimServers
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.node import FlagNote, Gpu, NodeFlag, NodePool
from dlq_web.door.guard import CSRF_HEADER
from support.fake_provider import FAKE
from support.rpc_house import RpcHouse, rpc_house
from support.shown_page import ShownPage, shown_page
from support.stored_values import a_machine, a_node, a_stay
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
LIGHT = 120_000  # bytes; scripts and styles have the rest of 150 kB
HOSTILE = "<script>alert(1)</script>\x1b[2J"
RECLAIM = "/api/dlq.v1.LoanService/ReclaimServers"
HIT = Hit(JobId(17), HOSTILE, "train", "preempt", 8, 0, 60.0, 300.0, False, None)
PLAN = Reclaimed("3f2a9c417d60", (NodeId("inf02"),), (HIT,), 60.0, True)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def lend(house: RpcHouse, name: str, flag: NodeFlag | None = NodeFlag.LOANED) -> None:
    flags = () if flag is None else (flag,)
    notes = [FlagNote(one, "", "user:prism", house.clock.now_s() - 3690.0) for one in flags]
    gpus = (Gpu(index=0, gpu_type="h100"), Gpu(index=1, gpu_type="h100"))
    node = a_node(name, pool=NodePool.INFERENCE, gpus=gpus)
    house.control.published.all_nodes[NodeId(name)] = node._replace(
        flags=frozenset(flags), notes=tuple(notes)
    )


async def seen(web: WebHouse, query: str = "") -> ShownPage:
    await web.enter()
    answer = await web.browser.get(f"/loans{query}", headers=HTML)
    assert answer.status_code == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)
    return shown_page(answer.text)


async def test_servers_are_shown_with_who_lent_them_and_what_is_on_those_that_leave(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(house, "inf01")
    lend(house, "inf02", NodeFlag.RECLAIMED)
    lend(house, "inf03", None)
    read = house.control.published
    monkeypatch.setattr(read, "server_words", lambda _name: HOSTILE)
    monkeypatch.setattr(read, "followed_load", lambda: Followed("http://load", busy=0.5, lent=2))
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert page.column("GPUs")[0] == "2"
    assert page.column("Server") == ["inf02", "inf01", "inf03"]
    assert page.column("State") == ["reclaimed", "lent", "away"]
    assert page.column("Since")[1] == "1h01m ago by user:prism"
    assert "1 reclaimed, 0 lending, 1 lent, 1 away." in page.words
    assert "http://load" in page.words
    assert "inf02 (reclaimed)" in page.words
    assert "GPU 1: no attempt holds it, its memory in use is not reported" in page.words


async def test_a_plan_says_its_price_and_its_proof_and_carries_its_token(house: RpcHouse) -> None:
    lend(house, "inf02")
    house.control.answers[ReclaimServers] = lambda _ask: PLAN
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?count=1&within=60s&force=1")
    assert "1 jobs (no choice preempts fewer)" in page.words
    assert "dlq admin reclaim --token 3f2a9c417d60" in page.words
    (button,) = page.having("data-reclaim")
    assert json.loads(button["data-reclaim"]) == {
        "token": "3f2a9c417d60", "count": 1, "withinDuration": "60s", "force": True,
    }  # fmt: skip
    assert page.column("Job") == ["17"]
    assert "/jobs/17" in page.links
    assert page.having("data-still"), "or each renewal asks for another plan"
    (asked,) = house.control.asked
    assert isinstance(asked, ReclaimServers)
    assert (asked.count, asked.within_s, asked.force, asked.plan_only) == (1, 60.0, True, True)


async def test_a_plan_that_would_be_refused_has_no_button(house: RpcHouse) -> None:
    lend(house, "inf02")
    house.control.answers[ReclaimServers] = lambda _ask: PLAN._replace(too_long=True)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?hosts=inf02&within=5s")
    assert "as asked it would be refused" in page.words
    assert not page.having("data-reclaim")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?count=x", "'x' is no number of servers"),
        ("?count=1&hosts=inf02", "name servers, or give a number"),
        ("?count=1&within=soon", "within: "),
        ("?count=99999", "more than 4096 servers"),
        ("?hosts=inf[", "inf["),
        ("?count=1&force=1", "force needs a time"),
    ],
)
async def test_a_question_that_makes_no_sense_is_answered_on_the_page(
    house: RpcHouse, query: str, words: str
) -> None:
    lend(house, "inf02")
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, query)
    assert words in page.words
    assert not page.having("data-reclaim")


async def test_a_stale_plan_is_refused_with_409_and_its_words(house: RpcHouse) -> None:
    lend(house, "inf02")

    def stale(_ask: ReclaimServers) -> Any:
        raise Conflict("the plan would differ now", hint="plan again")

    house.control.answers[ReclaimServers] = stale
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        page = shown_page((await web.browser.get("/loans", headers=HTML)).text)
        csrf = next(one["content"] for one in page.having("content") if one.get("name") == "csrf")
        answer = await web.browser.post(
            RECLAIM, json={"token": "3f2a9c417d60", "count": 1}, headers={CSRF_HEADER: csrf}
        )
    assert (answer.status_code, answer.json()["message"]) == (409, "the plan would differ now")


async def test_users_are_told_that_it_is_for_operators_and_see_their_costs(
    house: RpcHouse,
) -> None:
    lend(house, "inf02")
    async with web_house(house) as web:
        page = await seen(web, "?count=1")
    assert page.words.count("This part is for operators") == 2
    assert "inf02" not in page.words
    assert "Nothing was rented" in page.words
    assert not page.having("data-reclaim")


async def test_pools_have_their_machines_their_jobs_and_the_money(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = house.clock.now_s()
    pool = PoolConfig("spot", FAKE, "h100", 4, 10.0, most=3, give_up=1e3)
    read = house.control.published
    monkeypatch.setattr(read, "pools", lambda: ((pool,), RentingConfig(most_per_hour=50.0), {}))
    read.rented.append(
        a_machine("spot-1-1", price_per_hour=10.0, asked_s=now_s - 3600.0, fault=HOSTILE)
    )
    read.stays.append(a_stay("spot-1-1"))
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?days=1&by=job")
    assert page.column("Pool")[0] == "spot"
    assert page.column("Machine")[0] == "4 x h100"
    assert "of 50.00 now" in page.words
    assert "spot-1-1" in page.words
    assert "dlq report cost -S 1d --by job" in page.words
    assert "Foretold" in next(one[0] for one in page.tables if "Paid" in one[0])


async def test_an_empty_site_says_what_would_be_here(house: RpcHouse) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert "No host has joined for the inference side" in page.words
    assert "no pools: nothing can be rented" in page.words


@pytest.mark.parametrize("query", ["?days=9", "?by=colour"])
async def test_an_unknown_report_is_refused(house: RpcHouse, query: str) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get(f"/loans{query}", headers=HTML)
    assert answer.status_code == 400


async def test_many_leaving_servers_are_asked_for_within_a_bound(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_web.pages.loans.MOST_PROOFS", 2)
    for number in range(9):
        lend(house, f"inf0{number}", NodeFlag.RECLAIMED)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await asyncio.wait_for(seen(web), 30.0)
    assert page.words.count("(reclaimed)") == 2


async def test_a_large_site_is_a_light_page_with_those_that_move_first(house: RpcHouse) -> None:
    for number in range(1_024):
        lend(house, f"inference-{number:04}")
    lend(house, "inference-9999", NodeFlag.RECLAIMED)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        await web.enter()
        answer = await web.browser.get("/loans", headers=HTML)
    page = shown_page(answer.text)
    assert len(answer.content) <= LIGHT
    assert page.column("Server")[0] == "inference-9999"
    assert "and 825 more: dlq admin loan status lists all" in page.words
