"""The scope of a token: its program may read, or submit too, or do all that its user may."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Any

from google.protobuf.message import Message

from dlq_client.line.connection import CALL_DEADLINE_S
from dlq_common.errors import PermissionDenied
from dlq_web.line.calls import Asking
from dlq_web.line.methods import PublicMethod

# A method changes nothing if its name begins so; a test compares with the master's own table.
_READS = ("Get", "List", "Explain", "Watch", "Read", "Estimate", "Compare", "Plan")
_SUBMITS = ("SubmitJob", "SubmitJobs")


class Scope(StrEnum):
    """From the narrowest to the widest."""

    READ = "read"
    SUBMIT = "submit"
    ALL = "all"

    def allows(self, path: str) -> bool:
        """Whether a method with this path is within the scope."""
        name = path.rpartition("/")[2]
        if self is Scope.ALL or name.startswith(_READS):
            return True
        return self is Scope.SUBMIT and name in _SUBMITS


class ScopedLine:
    """The same line, for calls within a scope."""

    def __init__(self, line: Asking, scope: Scope) -> None:
        self._line = line
        self._scope = scope

    async def call(
        self, method: PublicMethod, request: Message, timeout_s: float = CALL_DEADLINE_S
    ) -> Any:
        """The answer. PermissionDenied for a method outside the scope, and what the line raises."""
        self._check(method)
        return await self._line.call(method, request, timeout_s)

    def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        """The messages, with the same refusals."""
        self._check(method)
        return self._line.stream(method, request)

    def _check(self, method: PublicMethod) -> None:
        if not self._scope.allows(method.path):
            raise PermissionDenied(
                f"this token may {self._scope}, and {method.path.rpartition('/')[2]} is more",
                hint="a token with a wider scope: the account page of the web server",
                needs=str(Scope.ALL),
            )
