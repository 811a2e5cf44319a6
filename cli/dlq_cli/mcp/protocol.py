"""The protocol by hand: JSON-RPC 2.0, one message a line, and the methods that a tool server has.

Its whole server side is three methods. The package `mcp` would bring two dozen others for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, BinaryIO

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LARGEST_LINE = 1024 * 1024
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602

Message = dict[str, Any]
Call = Callable[[str, Message], tuple[str, bool]]
"""A tool by its name and arguments: its text, and whether it failed."""


class NoAnswer(Exception):
    """A request that has no answer but an error."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class ToolServer:
    """Answers one client until its stream ends."""

    def __init__(
        self, tools: Iterable[Message], call: Call, instructions: str, notice: str
    ) -> None:
        """`instructions`: for the whole session; `notice`: behind the text of each tool."""
        self._tools = {tool["name"]: tool for tool in tools}
        self._call = call
        self._instructions, self._notice = instructions, notice

    def serve(self, lines: BinaryIO, answers: BinaryIO) -> None:
        """Read a message from each line; a line that is too long is no message."""
        while line := lines.readline(LARGEST_LINE + 1):
            cut = len(line) > LARGEST_LINE
            while cut and not line.endswith(b"\n"):
                line = lines.readline(LARGEST_LINE)
                if not line:
                    return
            answer = _error(None, PARSE_ERROR, "the message is too long") if cut else None
            answer = answer or (self.answer(line) if line.strip() else None)
            if answer is not None:
                text = json.dumps(answer, ensure_ascii=False)
                answers.write(text.encode("utf-8", "replace") + b"\n")
                answers.flush()

    def answer(self, line: bytes) -> Message | None:
        """The answer to a message; None where it wants none."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "this is not JSON")
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            if isinstance(message, dict) and ("result" in message or "error" in message):
                return None  # an answer to nothing that we asked
            return _error(None, INVALID_REQUEST, "this is not a request")
        if "id" not in message:
            return None  # a notification
        number, params = message["id"], message.get("params", {})
        if isinstance(number, bool) or not isinstance(number, str | int):
            return _error(None, INVALID_REQUEST, "the id is neither a text nor a number")
        try:
            if not isinstance(params, dict):
                raise NoAnswer(BAD_PARAMS, "params are an object")
            return {"jsonrpc": "2.0", "id": number, "result": self._result(message, params)}
        except NoAnswer as refused:
            return _error(number, refused.code, str(refused))

    def _result(self, message: Message, params: Message) -> Message:
        method = message["method"]
        if method == "ping":
            return {}
        if method == "initialize":
            return self._introduced(params)
        if method == "tools/list":
            return {"tools": list(self._tools.values())}
        if method == "tools/call":
            return self._called(params)
        raise NoAnswer(NO_METHOD, f"there is no method {method[:64]!r}")

    def _introduced(self, params: Message) -> Message:
        wished = params.get("protocolVersion")
        return {
            "protocolVersion": wished if wished in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "dlq", "version": version("dlq")},
            "instructions": self._instructions,
        }

    def _called(self, params: Message) -> Message:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or name not in self._tools:
            raise NoAnswer(BAD_PARAMS, f"there is no tool {str(name)[:64]!r}")
        if not isinstance(arguments, dict):
            raise NoAnswer(BAD_PARAMS, "arguments are an object")
        text, failed = self._call(name, arguments)
        content = [{"type": "text", "text": each} for each in (text, self._notice)]
        return {"content": content, "isError": failed}


def _error(number: str | int | None, code: int, words: str) -> Message:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}}
