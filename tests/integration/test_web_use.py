"""The page of use and of the scheduler: whose reports it shows, and what it says without data."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.units import DAY
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.usage.accounting import Account, Level, UseClass, Used
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shown_page import ShownPage, shown_page
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
STATIC = Path(__file__).resolve().parents[2] / "web/dlq_web/pages/static"
SCRIPTS = ("style.css", "live.js", "charts.js", "vendor/uplot/uPlot.iife.min.js",
           "vendor/uplot/uPlot.min.css")  # fmt: skip
HEAVIEST = 150_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def seen(web: WebHouse, query: str = "") -> ShownPage:
    await web.enter()
    answer = await web.browser.get(f"/use{query}", headers=HTML)
    assert answer.status_code == 200, answer.text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)
    weight = sum((STATIC / name).stat().st_size for name in SCRIPTS)
    assert len(answer.content) + weight <= HEAVIEST
    return shown_page(answer.text)


async def end_a_job(house: RpcHouse) -> None:
    """A job of alice that waited for 100 s, and was preempted twice."""
    request = wire.SubmitJobRequest(request_id="r")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 3
    await JobServiceStub(house.channel_as("alice", Role.USER)).SubmitJob(
        request, timeout=DEADLINE_S
    )
    jobs, now_s = house.control.published.all_jobs, house.clock.now_s()
    jobs[JobId(1)] = jobs[JobId(1)]._replace(
        state=JobState.COMPLETED, end_time_s=now_s, first_start_time_s=now_s - 50.0,
        submit_time_s=now_s - 150.0, preemptions=2, lost_gpu_s=7200.0,
    )  # fmt: skip


async def test_hours_waits_and_preemptions_are_those_of_the_reports(house: RpcHouse) -> None:
    today = int(house.clock.now_s() // DAY)
    account = Account(today, "alice", "", UseClass.BEST_EFFORT, "training")
    house.control.published.uses[account] = Used(useful=7200.0, preempted=3600.0)
    house.control.published.pool_uses[today, "training"] = Level(idle=1800.0)
    await end_a_job(house)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert (page.column("Useful")[0], page.column("Lost")[0]) == ("2.00", "1.00")
    assert page.column("Idle") == ["0.50"]
    assert page.column("Start p50 s")[0] == "100.00"
    assert page.column("Preempted jobs") == ["1"]
    assert "dlq report waits -S 7d" in page.words
    assert len(page.having("data-columns")) == 4
    assert "cluster_name" not in page.words


async def test_users_see_their_own_reports_and_no_turns(house: RpcHouse) -> None:
    await end_a_job(house)
    async with web_house(house, "bob") as web:
        page = await seen(web)
    assert "No job has ended" in page.words
    assert "Turns and waits for the disk are for operators" in page.words
    assert "verify-audit" not in page.words
    async with web_house(house) as web:
        assert (await seen(web)).column("Start p50 s")[0] == "100.00"


async def test_turns_of_the_loop_are_told_by_how_long_they_took(house: RpcHouse) -> None:
    house.meter.turned(0.003)
    house.meter.committed((), 0.002)
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert page.column("Turns")[:3] == ["0", "1", "0"]
    assert sum(map(int, page.column("Commits"))) == 1
    assert page.column("Time")[-1].startswith("above ")


async def test_an_empty_cluster_says_what_would_be_here(house: RpcHouse) -> None:
    house.control.published.all_nodes.clear()
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web, "?days=30")
    for words in ("No job has held a GPU", "No job has ended", "No node has joined"):
        assert words in page.words


async def test_agents_are_counted_by_version(house: RpcHouse) -> None:
    async with web_house(house, "olga", Role.OPERATOR) as web:
        page = await seen(web)
    assert "unknown 2 nodes, another version than the master's" in page.words


async def test_another_span_is_refused_by_name(house: RpcHouse) -> None:
    async with web_house(house) as web:
        await web.enter()
        answer = await web.browser.get("/use?days=8", headers=HTML)
    assert answer.status_code == 400
    assert "1, 7, 30" in answer.text
