"""The pages and their door: strangers, forged requests and hostile names get nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_web.door import guard
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import ADDRESS, COOKIE, WebHouse, web_house
from support.web_pages import page_paths

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
HOSTILE = "<script>alert(1)</script>\x1b[2J&\"'"
HOLD = "/api/dlq.v1.JobService/HoldJob"
PAGES = ("/", "/jobs", "/jobs/1", "/nodes")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.name = "<script>alert(1)</script>&'\""
        request.spec.command.extend(["/bin/echo", HOSTILE])
        request.spec.resources.gpu_count = 1
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        yield web


def csrf_of(text: str) -> str:
    found = re.search(r'<meta name="csrf" content="([^"]+)"', text)
    assert found is not None
    return found[1]


async def test_a_link_leads_to_the_first_page_once(web: WebHouse) -> None:
    link = web.sessions.new_link()
    await web.browser.head("/enter", params={"link": link})
    first = await web.browser.get("/enter", params={"link": link})
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    again = await web.browser.get("/enter", params={"link": link}, headers=HTML)
    assert again.status_code == 401
    assert "has been used" in again.text


@pytest.mark.parametrize("path", [*PAGES, "/v1/jobs", "/openapi.json", "/api/x/y"])
async def test_a_stranger_gets_nothing(web: WebHouse, path: str) -> None:
    for cookie in ("", "made-up"):
        web.browser.cookies.set(COOKIE, cookie, domain="127.0.0.1")
        answer = await web.browser.get(path, headers=HTML)
        assert answer.status_code == 401
        assert "alice" not in answer.text


@pytest.mark.parametrize("path", PAGES)
async def test_hostile_names_are_text_on_every_page(web: WebHouse, path: str) -> None:
    await web.enter()
    answer = await web.browser.get(path, headers=HTML)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text


async def test_every_answer_forbids_what_is_not_ours(web: WebHouse) -> None:
    await web.enter()
    for path in (
        *PAGES,
        "/nope",
        "/v1/jobs",
        "/static/style.css",
        "/static/look.css",
        "/static/live.js",
    ):
        answer = await web.browser.get(path, headers=HTML)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert path == "/nope" or answer.status_code == 200
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", answer.text)
        if answer.headers["content-type"].startswith("text/html"):
            assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)


async def test_every_style_and_script_that_a_page_names_is_there(web: WebHouse) -> None:
    await web.enter()
    named = {"/static/look.css"}
    for path in (*page_paths(node="gpu01"), "/wall", "/nope"):
        text = (await web.browser.get(path, headers=HTML)).text
        named |= set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
    assert len(named) > 5
    missing = [one for one in named if (await web.browser.get(one)).status_code != 200]
    assert missing == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7330", "127.0.0.1:7331", ""])
async def test_a_forged_host_is_refused(web: WebHouse, host: str) -> None:
    await web.enter()
    answer = await web.browser.get("/", headers={"host": host})
    assert answer.status_code == 403


async def test_a_change_needs_the_token_of_the_session(web: WebHouse) -> None:
    await web.enter()
    page = await web.browser.get("/jobs/1", headers=HTML)
    asked = {"jobId": "1"}
    assert (await web.browser.post(HOLD, json=asked)).status_code == 403
    wrong = {guard.CSRF_HEADER: "wrong"}
    assert (await web.browser.post(HOLD, json=asked, headers=wrong)).status_code == 403
    foreign = {guard.CSRF_HEADER: csrf_of(page.text), "origin": "http://evil.example"}
    assert (await web.browser.post(HOLD, json=asked, headers=foreign)).status_code == 403
    own = {guard.CSRF_HEADER: csrf_of(page.text), "origin": f"http://{ADDRESS}"}
    done = await web.browser.post(HOLD, json=asked, headers=own)
    assert (done.status_code, done.json()["job"]["state"]) == (200, "JOB_STATE_HELD")


async def test_a_cookie_is_no_token_and_a_token_no_cookie(web: WebHouse) -> None:
    entered = web.sessions.enter(web.sessions.new_link())
    as_token = await web.browser.get("/v1/jobs", headers={"authorization": f"Bearer {entered}"})
    assert as_token.status_code == 401
    web.browser.cookies.set(COOKIE, web.sessions.begin(by_cookie=False), domain="127.0.0.1")
    assert (await web.browser.get("/v1/jobs")).status_code == 401


async def test_leaving_ends_the_session_for_a_stolen_cookie_too(web: WebHouse) -> None:
    await web.enter()
    stolen = dict(web.browser.cookies)[COOKIE]
    page = await web.browser.get("/", headers=HTML)
    left = await web.browser.post("/leave", headers={guard.CSRF_HEADER: csrf_of(page.text)})
    assert left.status_code == 200
    web.browser.cookies.set(COOKIE, stolen, domain="127.0.0.1")
    assert (await web.browser.get("/")).status_code == 401


async def test_too_many_requests_are_told_to_come_back(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "EACH_SECOND", 0.0)
    monkeypatch.setattr(guard, "AT_ONCE", 3.0)
    headers = web.program()
    strangers = [await web.browser.get("/v1/queues") for _ in range(9)]
    assert {one.status_code for one in strangers} == {401}
    answers = [await web.browser.get("/v1/queues", headers=headers) for _ in range(4)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["retry-after"] == "1"


async def test_a_page_of_another_s_job_says_no_more_than_of_none(house: RpcHouse) -> None:
    async with web_house(house, "bob") as web:
        await web.enter()
        others = await web.browser.get("/jobs/1", headers=HTML)
        nobodys = await web.browser.get("/jobs/9", headers=HTML)
    assert (others.status_code, nobodys.status_code) == (404, 404)
    assert others.text.replace("job 1", "job 9") == nobodys.text


async def test_a_refusal_leads_on_to_other_pages_where_somebody_is_signed_in(
    web: WebHouse,
) -> None:
    for path in ("/jobs/99", "/nowhere"):
        assert "<nav" not in (await web.browser.get(path, headers=HTML)).text
    await web.enter()
    for path, status in (("/jobs/99", 404), ("/jobs?cursor=x", 400), ("/nowhere", 404)):
        refused = await web.browser.get(path, headers=HTML)
        assert refused.status_code == status
        assert 'href="/jobs"' in refused.text
        assert "alice" in refused.text


async def test_the_queue_has_a_field_for_a_team(web: WebHouse) -> None:
    await web.enter()
    text = (await web.browser.get("/jobs?team=vision", headers=HTML)).text
    assert '<input name="team" value="vision"' in text
    assert 'type="hidden" name="team"' not in text
    assert 'href="/what-if"' in text, "from each page"


async def test_a_job_s_page_has_its_reasons_and_what_may_be_done(web: WebHouse) -> None:
    await web.enter()
    text = (await web.browser.get("/jobs/1", headers=HTML)).text
    assert "Why it does not run" in text
    assert 'data-action="hold"' in text
    assert "<code>dlq hold 1</code>" in text


async def test_an_empty_cluster_says_what_to_do(house: RpcHouse) -> None:
    house.control.published.all_nodes.clear()
    async with web_house(house, "bob") as web:
        await web.enter()
        pages = [(await web.browser.get(path, headers=HTML)).text for path in ("/", "/nodes")]
    assert "dlq submit" in pages[0]
    assert "dlq admin token create" in pages[1]


@pytest.mark.parametrize(
    ("word", "target"),
    [("1", "/jobs/1"), ("12_3", "/jobs/12_3"), ("SCRIPT alice", "/jobs/1"),
     ("gpu01", "/nodes/gpu01")],
)  # fmt: skip
async def test_the_search_leads_to_the_one_thing_that_is_meant(
    web: WebHouse, word: str, target: str
) -> None:
    await web.enter()
    answer = await web.browser.get("/search", params={"q": word})
    assert (answer.status_code, answer.headers["location"]) == (303, target)


async def test_a_master_that_is_away_gets_a_page(house: RpcHouse, web: WebHouse) -> None:
    await web.enter()
    await house.server.stop(0.0)
    answer = await web.browser.get("/", headers=HTML)
    assert answer.status_code == 503
    assert "master" in answer.text
    assert (await web.browser.get("/readyz")).status_code == 503
