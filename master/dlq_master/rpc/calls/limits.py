"""Limits of one caller: a deadline on each call, and few streams, reads and changes at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dlq_common.errors import InvalidRequest, TryAgain
from dlq_common.identity.pki import Role
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import Lines

STREAMS_OF_A_PERSON = 16
# Its session, the one it replaces, and the logs that people read.
STREAMS_OF_A_NODE = 64
# Forecasts wait for the twin, not for the loop. Changes are cheap one by one, and share turns.
FORECASTS_AT_ONCE = 8
CHANGES_AT_ONCE = 256
_FORECASTS = frozenset(
    f"/dlq.v1.ForecastService/{name}" for name in ("EstimateJob", "CompareForecasts")
)


class CallLimits:
    """Counts what each identity has open; lives in the event loop's thread."""

    def __init__(self) -> None:
        self._reads = Lines("reads")
        self._forecasts = Lines("forecasts", at_once=FORECASTS_AT_ONCE)
        self._changes = Lines("changes", at_once=CHANGES_AT_ONCE, in_line=CHANGES_AT_ONCE)
        self._streams: Counter[tuple[Role, str]] = Counter()

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """A step inside the door: refuses with InvalidRequest, or with TryAgain while others are
        open. A person's read or change waits until few enough of the same person are on their way.
        """
        assert call.identity is not None
        if not call.streaming:
            check_deadline(call)
            if call.identity.role is Role.NODE:
                yield
                return
            async with self._lines(call).place(call.identity.name):
                yield
            return
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

    def _lines(self, call: Call) -> Lines:
        if call.path in _FORECASTS:
            return self._forecasts
        return self._changes if call.method.changes else self._reads


def check_deadline(call: Call) -> None:
    """A call whose client would wait for ever is refused: it is a client's mistake."""
    if call.context.time_remaining() is None:
        raise InvalidRequest("the call has no deadline; every unary call needs one")
