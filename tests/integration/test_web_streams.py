"""Streams in front of a master's real door: how many there are, and with what they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_web.api import streams
from dlq_web.api.params import Param
from dlq_web.api.stream_reads import STREAMS, StreamRead
from dlq_web.door.guard import STRANGER
from dlq_web.door.sessions import Person
from dlq_web.line.calls import Asking
from dlq_web.line.methods import PublicMethod
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.web_house import ADDRESS, COOKIE, WebHouse, web_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        yield house


@pytest.fixture
async def web(house: RpcHouse, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebHouse]:
    monkeypatch.setattr(streams, "FIRST_S", 0.01)
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    async with web_house(house) as web:
        yield web


class Client:
    """A connection of its own, as the server sees it: one request, read until it is left."""

    def __init__(self, web: WebHouse, path: str, headers: dict[str, str], **more: Any) -> None:
        """`more` goes into the scope."""
        self.status = 0
        self.began = asyncio.Event()
        self.gone = asyncio.Event()
        self.refuses = False  # to take an answer: it has gone already
        path, _, query = path.partition("?")
        told = {"host": ADDRESS, **headers}
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET",
            "http_version": "1.1", "scheme": "http", "path": path, "query_string": query.encode(),
            "headers": [(key.encode(), value.encode()) for key, value in told.items()], **more,
        }  # fmt: skip
        app: Any = web.app
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self.refuses:
            raise OSError("the reader has gone")
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.began.set()

    async def answered(self) -> int:
        await asyncio.wait_for(self.began.wait(), DEADLINE_S)
        return self.status

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.wait([self.task]), DEADLINE_S)

    async def leave(self) -> None:
        self.gone.set()
        await self.ended()


async def test_many_at_once_are_no_more_than_the_limit(web: WebHouse) -> None:
    headers = web.program()
    clients = [Client(web, "/v1/events", headers) for _ in range(5)]
    assert sorted([await one.answered() for one in clients]) == [200, 200, 429, 429, 429]
    for one in clients:
        await one.leave()
    again = Client(web, "/v1/events", headers)
    assert await again.answered() == 200
    await again.leave()


async def test_a_reader_who_is_gone_before_the_answer_leaves_nothing_behind(
    web: WebHouse,
) -> None:
    for _ in range(5):
        client = Client(web, "/v1/events", web.program())
        client.refuses = True
        await client.ended()
        assert isinstance(client.task.exception(), Exception)
    await test_many_at_once_are_no_more_than_the_limit(web)


async def test_leaving_ends_the_open_streams_of_the_session(web: WebHouse) -> None:
    """Also those of somebody who has the same cookie."""
    secret = web.sessions.begin(by_cookie=True)
    mine = Client(web, "/v1/events", {"cookie": f"{COOKIE}={secret}"})
    other = Client(web, "/v1/events", web.program())
    assert (await mine.answered(), await other.answered()) == (200, 200)
    web.sessions.leave(secret)
    await mine.ended()
    assert not other.task.done()
    web.sessions.end_all()
    await other.ended()


async def test_a_removed_user_s_streams_end(house: RpcHouse, web: WebHouse) -> None:
    client = Client(web, "/v1/events", web.program())
    assert await client.answered() == 200
    del house.control.published.all_users["alice"]
    house.control.note("job_named", job_id=1)
    await client.ended()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/events?after=99999", 410), ("/v1/events?afer=3", 400), ("/v1/jobs/1/logs", 400)],
)
async def test_a_refused_stream_has_a_status(
    web: WebHouse, path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves its place to others."""
    monkeypatch.setattr(streams, "FIRST_S", 60.0)  # the master of a busy machine refuses later
    for _ in range(3):
        client = Client(web, path, web.program())
        assert await client.answered() == status
        await client.ended()


@pytest.mark.parametrize("value", ["", "x", "-9223372036854775809", "1.5", "\u0661", "9" * 5000])
@pytest.mark.parametrize(
    ("stream", "param"), [(one, param) for one in STREAMS for param in one.of_query()]
)
async def test_a_hostile_value_of_each_parameter_is_refused_by_its_name(
    web: WebHouse, stream: StreamRead, param: Param, value: str
) -> None:
    path = f"/v1{stream.path}".replace("{job}", "1")
    answer = await web.browser.get(path, params={param.name: value}, headers=web.program())
    assert (answer.status_code, answer.json()["field"]) == (400, param.name)


async def test_the_last_number_seen_counts_instead_of_the_parameter(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FIRST_S", 60.0)
    for told, status in (("99999", 410), ("soon", 400)):
        headers = web.program() | {"last-event-id": told}
        answer = await web.browser.get("/v1/events?after=0", headers=headers)
        assert answer.status_code == status


async def test_the_job_of_a_path_is_no_parameter_of_the_query(web: WebHouse) -> None:
    answer = await web.browser.get("/v1/jobs/1/logs?job=2", headers=web.program())
    assert (answer.status_code, answer.json()["field"]) == (400, "job")


class Racing:
    """A line by which something happens, and is heard of, before its answer has arrived."""

    def __init__(self, line: Asking, house: RpcHouse, web: WebHouse) -> None:
        self._line, self._house, self._web = line, house, web
        self._raced = False

    async def call(self, method: PublicMethod, request: Message, timeout_s: float = 10.0) -> Any:
        answer = await self._line.call(method, request, timeout_s)
        if method.path.endswith("/ListEvents") and not self._raced:
            self._raced = True
            heard = self._web.feed.events()
            coming = asyncio.ensure_future(anext(heard))
            async with asyncio.timeout(DEADLINE_S):
                while not coming.done():  # the feed begins to listen some time
                    self._house.control.note("job_named", job_id=1)
                    await asyncio.wait([coming], timeout=0.1)
            await heard.aclose()
        return answer

    def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        return self._line.stream(method, request)


async def test_what_happens_while_a_read_is_answered_ends_its_waiting(
    house: RpcHouse, web: WebHouse
) -> None:
    headers = web.program()
    first = await web.browser.get("/v1/jobs/1/events", headers=headers)
    app: Any = web.app
    person: Person = app.state.person
    line = Racing(person.line, house, web)
    app.state.person = Person(person.name, person.role, person.cluster, line, person.feed)
    again = headers | {"if-none-match": first.headers["etag"]}
    answer = await web.browser.get("/v1/jobs/1/events", params={"wait": 20}, headers=again)
    assert answer.status_code == 200
    assert "job_named" in answer.text


async def test_a_stranger_of_this_host_gets_nothing_by_any_secret(web: WebHouse) -> None:
    """A browser shows the cookie of one port to every port of its host."""
    link, cookie = web.sessions.new_link(), web.sessions.begin(by_cookie=True)
    for path, headers in (
        ("/v1/jobs", web.program()),
        ("/v1/jobs", {"cookie": f"{COOKIE}={cookie}"}),
        (f"/enter?link={link}", {}),
    ):
        client = Client(web, path, headers, **{STRANGER: True})
        assert await client.answered() == 403
        await client.ended()
    for path, status in (("/livez", 200), ("/readyz", 200)):
        client = Client(web, path, {}, **{STRANGER: True})
        assert await client.answered() == status
        await client.ended()
    assert (await web.browser.get("/enter", params={"link": link})).status_code == 303


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-site", "no-cors", 403),  # another port of this host
        ("cross-site", "cors", 403),
        ("cross-site", "navigate", 200),  # a link in a mail
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ],
)
async def test_a_foreign_page_opens_nothing_in_the_background(
    web: WebHouse, site: str, mode: str, status: int
) -> None:
    await web.enter()
    told = {"sec-fetch-site": site, "sec-fetch-mode": mode}
    assert (await web.browser.get("/v1/jobs", headers=told)).status_code == status


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
async def test_every_form_of_a_known_tag_is_known(web: WebHouse, form: str) -> None:
    headers = web.program()
    tag = (await web.browser.get("/v1/queues", headers=headers)).headers["etag"]
    again = headers | {"if-none-match": form.format(tag)}
    assert (await web.browser.get("/v1/queues", headers=again)).status_code == 304


async def test_our_own_fault_carries_the_headers_too(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("dlq_web.pages.views.look_at", broken)
    await web.enter()
    answer = await web.browser.get("/", headers={"accept": "text/html"})
    assert answer.status_code == 500
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert "a bug" not in answer.text


async def test_a_change_without_an_event_shows_at_the_end_of_the_wait(
    house: RpcHouse, web: WebHouse
) -> None:
    """Nodes change by other users' jobs, of which this user hears nothing."""
    headers = web.program()
    first = await web.browser.get("/v1/nodes", headers=headers)
    again = headers | {"if-none-match": first.headers["etag"]}
    waiting = asyncio.ensure_future(web.browser.get("/v1/nodes", params={"wait": 2}, headers=again))
    await asyncio.sleep(0.5)
    house.control.published.all_nodes.clear()
    answer = await waiting
    assert (answer.status_code, answer.json()["nodes"]) == (200, [])
