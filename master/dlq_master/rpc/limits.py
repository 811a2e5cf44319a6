"""What one caller may use of the master: a deadline on each call, and few streams at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_common.errors import InvalidRequest, TryAgain
from dlq_common.pki import Role
from dlq_master.rpc.call import Call

STREAMS_OF_A_PERSON = 16
# Its session, the one it replaces, and the logs that people read.
STREAMS_OF_A_NODE = 64


class Limits:
    """Counts the open streams of each identity; lives in the event loop's thread."""

    def __init__(self) -> None:
        self._streams: Counter[tuple[Role, str]] = Counter()

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """A step inside the door: refuses with InvalidRequest, or with TryAgain while others are open."""
        if not call.streaming:
            check_deadline(call)
            yield
            return
        assert call.identity is not None
        key = (call.identity.role, call.identity.name)
        most = STREAMS_OF_A_NODE if key[0] is Role.NODE else STREAMS_OF_A_PERSON
        if self._streams[key] >= most:
            raise TryAgain(
                f"{call.identity.name} has {most} streams open already",
                hint="each `wait`, `status -w`, `logs -f` and `events -w` has one",
                limit="streams",
                used=most,
            )
        self._streams[key] += 1
        try:
            yield
        finally:
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]


def check_deadline(call: Call) -> None:
    """A call whose client would wait for ever is refused: it is a client's mistake."""
    if call.context.time_remaining() is None:
        raise InvalidRequest("the call has no deadline; every unary call needs one")
