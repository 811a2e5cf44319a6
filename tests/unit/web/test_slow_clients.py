"""Clients that send nothing, or a little at a time, hold no connection and no request for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dlq_common.errors import InvalidRequest
from dlq_web import listening
from dlq_web.door import guard
from dlq_web.listening import OpenProtocol


class Line(asyncio.Transport):
    """A connection from an address, as the protocol sees it."""

    def __init__(self, address: str = "192.0.2.9") -> None:
        super().__init__({"peername": (address, 4711), "sockname": ("192.0.2.1", 443)})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Any) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """It is open until its client leaves."""

    def is_closing(self) -> bool:
        return False


async def never_answers(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


def protocol_of(line: Line) -> OpenProtocol:
    config = uvicorn.Config(never_answers, lifespan="off", log_config=None)
    config.load()
    made = OpenProtocol(config, ServerState(), {})
    made.connection_made(line)
    return made


async def rounds() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_request_that_does_not_come_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listening, "REQUEST_S", 0.0)
    line = Line()
    protocol = protocol_of(line)
    if sent:
        protocol.data_received(sent)
    await rounds()
    assert line.aborted
    protocol.connection_lost(None)


async def test_a_request_that_is_answered_may_take_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "REQUEST_S", 0.0)
    line = Line()
    protocol = protocol_of(line)
    protocol.data_received(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
    await rounds()
    assert not line.aborted
    protocol.connection_lost(None)
    for task in protocol.tasks:
        task.cancel()


async def test_an_address_has_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_OF_AN_ADDRESS", 2)
    lines = [Line(), Line(), Line(), Line("198.51.100.1")]
    protocols = [protocol_of(line) for line in lines]
    assert [line.aborted for line in lines] == [False, False, True, False]
    for protocol in protocols:
        protocol.connection_lost(None)
    again = Line()
    protocol_of(again).connection_lost(None)
    assert not again.aborted, "they are counted as long as they are open"


async def test_a_body_that_comes_too_slowly_ends_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.0)

    async def never() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(InvalidRequest, match="is sent within"):
        await guard._bounded(never)()


async def test_the_end_of_a_connection_is_awaited_without_a_limit() -> None:
    messages: list[Any] = [
        {"type": "http.request", "body": b"x", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    receiving = guard._bounded(receive)
    assert (await receiving())["body"] == b"x"
    assert (await receiving())["type"] == "http.disconnect"
