"""The messages of `dlq mcp`: introductions, answers, errors, and hostile lines."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dlq_cli.mcp import protocol
from dlq_cli.mcp.protocol import ToolServer

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


def server() -> ToolServer:
    return ToolServer(
        TOOLS, lambda name, given: (f"{name} {json.dumps(given)}", False), "be kind", "hearsay"
    )


def asked(*messages: Any) -> list[dict[str, Any]]:
    lines = b"".join(
        message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        for message in messages
    )
    out = io.BytesIO()
    server().serve(io.BytesIO(lines), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def request(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_a_client_is_told_its_own_version_and_the_tools() -> None:
    told, listed = asked(
        request("initialize", protocolVersion="2024-11-05", capabilities={}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/list", 2),
    )
    assert told["result"]["protocolVersion"] == "2024-11-05"
    assert told["result"]["serverInfo"]["name"] == "dlq"
    assert told["result"]["instructions"] == "be kind"
    assert listed == {"jsonrpc": "2.0", "id": 2, "result": {"tools": TOOLS}}


def test_a_version_that_nobody_knows_gets_the_newest() -> None:
    (told,) = asked(request("initialize", protocolVersion="1999-01-01"))
    assert told["result"]["protocolVersion"] == protocol.VERSIONS[0]


def test_a_tool_is_called_and_a_ping_answered() -> None:
    called, pong = asked(request("tools/call", name="echo", arguments={"a": 1}), request("ping", 9))
    assert called["result"] == {
        "content": [
            {"type": "text", "text": 'echo {"a": 1}'}, {"type": "text", "text": "hearsay"}
        ],
        "isError": False,
    }  # fmt: skip
    assert pong["result"] == {}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{no json\n", protocol.PARSE_ERROR),
        (b"[" * 100_000 + b"\n", protocol.PARSE_ERROR),
        (b"x" * (protocol.LARGEST_LINE + 10) + b"\n", protocol.PARSE_ERROR),
        ([], protocol.INVALID_REQUEST),
        ("text", protocol.INVALID_REQUEST),
        ({"id": 1}, protocol.INVALID_REQUEST),
        ({"id": True, "method": "ping"}, protocol.INVALID_REQUEST),
        ({"id": {}, "method": "ping"}, protocol.INVALID_REQUEST),
        ({"id": 1, "method": "ping", "params": []}, protocol.BAD_PARAMS),
        (request("no/such"), protocol.NO_METHOD),
        (request("tools/call", name="rm"), protocol.BAD_PARAMS),
        (request("tools/call", name=["echo"]), protocol.BAD_PARAMS),
        (request("tools/call", name="echo", arguments=[1]), protocol.BAD_PARAMS),
    ],
    ids=range(13),
)
def test_a_bad_message_gets_an_error_and_the_next_one_an_answer(message: Any, code: int) -> None:
    refused, pong = asked(message, request("ping", 2))
    assert refused["error"]["code"] == code
    assert pong["id"] == 2


def test_notifications_empty_lines_and_answers_get_none() -> None:
    assert asked({"method": "x"}, b"\n", {"id": 3, "result": {}}) == []


def test_half_a_character_ends_no_server() -> None:
    line = b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}\n'
    told, next_ = asked(line, request("ping", 2))
    assert told["id"] == "?"
    assert next_["id"] == 2
