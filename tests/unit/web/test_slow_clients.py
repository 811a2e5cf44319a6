"""Clients that send nothing, or a little at a time, hold no connection and no request for long."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dlq_common.errors import InvalidRequest
from dlq_web import accepting, listening
from dlq_web.accepting import BoundedListener
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


def came(listening: BoundedListener, address: str) -> tuple[socket.socket, socket.socket | None]:
    """A client from this address, and its connection as the server has it; None: it was refused."""
    client = socket.create_connection(listening.getsockname(), source_address=(address, 0))
    with suppress(ConnectionAbortedError):
        return client, listening.accept()[0]
    assert client.recv(1) == b"", "it is closed at once, before any word of TLS"
    return client, None


def test_an_address_has_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MOST_OF_AN_ADDRESS", 2)
    with BoundedListener(socket.create_server(("127.0.0.1", 0))) as listening:
        addresses = ["127.0.0.9", "127.0.0.9", "127.0.0.9", "127.0.0.10"]
        pairs = [came(listening, one) for one in addresses]
        assert [taken is None for _, taken in pairs] == [False, False, True, False]
        for one in (one for pair in pairs for one in pair if one is not None):
            one.close()
            one.close()
        client, taken = came(listening, "127.0.0.9")
        assert taken is not None, "they are counted as long as they are open"
        taken.close()
        client.close()


def test_all_addresses_together_have_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MOST_CONNECTIONS", 1)
    with BoundedListener(socket.create_server(("127.0.0.1", 0))) as listening:
        first, second = came(listening, "127.0.0.9"), came(listening, "127.0.0.10")
        assert second[1] is None
        for one in (*first, second[0]):
            assert one is not None
            one.close()


def test_behind_a_proxy_all_connections_are_the_proxy_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MOST_OF_AN_ADDRESS", 0)
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as plain, socket.socket(socket.AF_UNIX) as client:
        plain.bind(path)
        plain.listen()
        with BoundedListener(plain) as listening:
            client.connect(path)
            listening.accept()[0].close()


async def test_the_loop_serves_a_bounded_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MOST_OF_AN_ADDRESS", 1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    listening = BoundedListener(socket.create_server(("127.0.0.1", 0)))
    address = listening.getsockname()
    async with await asyncio.start_server(answer, sock=listening):
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read(1) == b"x"
        more, other = await asyncio.open_connection(*address)
        assert await more.read(1) == b"", "one too many"
        other.close()
        writer.close()
        await left.wait()
        again, writer = await asyncio.open_connection(*address)
        assert await again.read(1) == b"x", "the first one has left"
        left.clear()
        writer.close()
        await left.wait()


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
