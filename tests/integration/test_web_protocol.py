"""The web server's answers by the letter of HTTP and of Connect: methods, packing, time."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq_web.api import streams
from dlq_web.door.guard import LARGEST_BODY
from support.rpc_house import RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
CLUSTER = "/api/dlq.v1.QueueService/GetCluster"
PACKED = {"content-type": "application/json", "content-encoding": "gzip"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        yield web


async def test_a_head_of_a_stream_ends_and_holds_no_place(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FIRST_S", 0.01)
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    for _ in range(3):
        answer = await web.browser.head("/v1/events", headers=web.program())
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("application/x-ndjson")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/jobs", "GET, HEAD"),
        ("DELETE", "/v1/jobs/1", "GET, HEAD"),
        ("GET", CLUSTER, "POST"),
        ("PUT", "/livez", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    web: WebHouse, method: str, path: str, allowed: str
) -> None:
    answer = await web.browser.request(method, path, headers=web.program())
    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == sorted(allowed.split(", "))
    assert answer.headers["content-security-policy"]


async def test_a_body_may_be_packed(web: WebHouse) -> None:
    headers = web.program() | PACKED
    answer = await web.browser.post(CLUSTER, content=gzip.compress(b"{}"), headers=headers)
    assert answer.status_code == 200
    assert answer.json()["clusterName"] == "lab"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "no gzip"),
        (gzip.compress(b'{"a": 1}')[:-4], "no gzip"),
        (gzip.compress(b"{}") + b"more", "no gzip"),
        (gzip.compress(b" " * (LARGEST_BODY + 1)), "at most"),
    ],
)
async def test_a_body_packed_wrongly_or_too_large_is_refused(
    web: WebHouse, body: bytes, words: str
) -> None:
    answer = await web.browser.post(CLUSTER, content=body, headers=web.program() | PACKED)
    assert answer.status_code == 400
    assert words in answer.json()["message"]


async def test_another_packing_is_refused_with_those_there_are(web: WebHouse) -> None:
    headers = web.program() | PACKED | {"content-encoding": "br"}
    answer = await web.browser.post(CLUSTER, content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")
    assert "gzip" in answer.headers["accept-encoding"]


async def test_a_call_whose_time_is_over_says_so(
    house: RpcHouse, web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def never(*_asked: Any, **_more: Any) -> Any:
        await held.wait()

    monkeypatch.setattr(house.control, "ask", never)
    headers = web.program() | {"connect-timeout-ms": "200"}
    submit = "/api/dlq.v1.JobService/SubmitJob"
    spec = {"spec": {"command": ["/bin/true"], "resources": {"gpuCount": 1}}}
    answer = await web.browser.post(submit, json=spec, headers=headers)
    held.set()
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
