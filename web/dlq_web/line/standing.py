"""A line to the master as one user that lasts as long as the service, for a screen on the wall.

Nobody signs in for it. The master grants or refuses each call, and the rights end with the user.
After a renewal of the service's certificate the next call dials anew.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.protobuf.message import Message

from dlq_client.line.connection import CALL_DEADLINE_S
from dlq_common.clock import Clock
from dlq_common.identity.acting import ActsFor
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import PublicMethod


class StandingLine:
    """The master, asked as this user by the service's present identity."""

    def __init__(self, service: MasterLine, user: str, clock: Clock) -> None:
        self._service, self._user, self._clock = service, ActsFor(user), clock
        self._line: MasterLine | None = None

    async def call(
        self, method: PublicMethod, request: Message, timeout_s: float = CALL_DEADLINE_S
    ) -> Any:
        """The answer of a unary method. Raises DlqError."""
        return await (await self._present()).call(method, request, timeout_s)

    async def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        """The messages of a method that streams its answer. Raises DlqError."""
        async for message in (await self._present()).stream(method, request):
            yield message

    async def _present(self) -> MasterLine:
        identity = self._service.identity
        if self._line is None or self._line.identity is not identity:
            await self.close()
            self._line = MasterLine(identity, self._clock, self._user)
        return self._line

    async def close(self) -> None:
        """End what is open."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()
