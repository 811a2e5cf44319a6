"""How the server begins: a port that is taken, and packages that are not there."""

from __future__ import annotations

import asyncio
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dlq_common.errors import ConfigError
from dlq_web import serving
from dlq_web.command import web
from dlq_web.config import WebListenConfig
from dlq_web.listening import listening_socket
from dlq_web.serving import HOST, MOST_STRANGERS
from support.fake_clock import FakeClock


def test_a_free_port_serves_where_the_usual_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((serving.HOST, 0)) as taken:
        usual = taken.getsockname()[1]
        monkeypatch.setattr(serving, "USUAL_PORT", usual)
        with serving.bound(None) as listening:
            port = listening.getsockname()[1]
            assert port != usual
            socket.create_connection((serving.HOST, port)).close()
        with (
            pytest.raises(ConfigError, match=f"port {usual}") as refused,
            serving.bound(usual),
        ):
            pass
    assert "--port" in refused.value.hint


def test_a_small_answer_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would hold it back until the caller has confirmed its first part: 40 ms a call."""
    monkeypatch.setattr(serving, "USUAL_PORT", 0)
    with serving.bound(None) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ConfigError, match="structlog is not installed") as refused:
        web.main(args=[], obj=SimpleNamespace(clock=FakeClock()), standalone_mode=False)
    assert "dlq[web]" in refused.value.hint


async def test_strangers_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each that goes makes way for another."""
    stranger = True
    monkeypatch.setattr(serving, "is_stranger", lambda *_: stranger)
    server = await _served()
    port = server.sockets[0].getsockname()[1]
    few = [await asyncio.open_connection(HOST, port) for _ in range(MOST_STRANGERS)]
    assert await _status(port) == b""
    few.pop()[1].close()
    said = b""
    for _ in range(100):
        if said := await _status(port):
            break
        await asyncio.sleep(0.05)
    assert said.startswith(b"HTTP/1.1 200")
    stranger = False
    assert (await _status(port)).startswith(b"HTTP/1.1 200")
    for _, line in few:
        line.close()
    server.close()


async def _served() -> asyncio.Server:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, http=serving._Protocol, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: serving._Protocol(config=config, server_state=state, app_state={}), HOST, 0
    )


async def _status(port: int) -> bytes:
    try:
        reading, line = await asyncio.open_connection(HOST, port)
        line.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = await asyncio.wait_for(reading.read(), 30.0)
    except ConnectionError:
        return b""
    line.close()
    return said


def test_a_small_answer_of_the_server_for_all_is_sent_at_once() -> None:
    """Connections take the option over from the socket that listens."""
    with listening_socket(WebListenConfig(address=f"{HOST}:0"), {}) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
