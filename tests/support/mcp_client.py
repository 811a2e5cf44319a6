"""A client of `dlq mcp` as programs are: it starts a process and writes a line for each message."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.up_box import DLQ, UpBox


class McpClient:
    """One session, from the introduction to the end of stdin."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._number = process, 0
        told = self._ask("initialize", protocolVersion="2025-06-18", capabilities={},
                         clientInfo={"name": "test", "version": "1"})  # fmt: skip
        assert told["protocolVersion"] == "2025-06-18"
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = {tool["name"] for tool in self._ask("tools/list")["tools"]}

    def text(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's answer, which must be none of a failure."""
        result = self._ask("tools/call", name=tool, arguments=arguments)
        text: str = result["content"][0]["text"]
        assert result["isError"] is False, text
        return text

    def told(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The document of a tool's answer."""
        document: dict[str, Any] = json.loads(self.text(tool, **arguments))
        return document

    def failure(self, tool: str, /, **arguments: Any) -> str:
        """The text of an answer that is a failure."""
        result = self._ask("tools/call", name=tool, arguments=arguments)
        text: str = result["content"][0]["text"]
        assert result["isError"] is True, text
        return text

    def _ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert answer["id"] == self._number
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


@contextmanager
def mcp_session(box: UpBox, *words: str) -> Iterator[McpClient]:
    """A session with the server of this box's user; the server ends with its stdin."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", DLQ, "mcp", *words],
        env=box.environment, cwd=box.root, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield McpClient(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0
