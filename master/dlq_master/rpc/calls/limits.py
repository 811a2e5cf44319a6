"""Limits of one caller: each call has a deadline, and few streams, reads and changes
run at a time.
"""

from __future__ import annotations

from collections import Counter

from dlq_common.errors import InvalidRequest, TryAgain
from dlq_common.identity.pki import CertifiedIdentity, Role
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import Lines, Slices

STREAMS_OF_A_PERSON = 16
# Counted apart. A command whose bytes move to the relay, or back, has two of them for a moment.
COMMANDS_OF_A_PERSON = 32
# Its session, the one it replaces, and the logs that people read.
STREAMS_OF_A_NODE = 64
# The twin takes few questions at a time (forecasts.MOST_QUESTIONS): one person gets a part of them.
FORECASTS_AT_ONCE = 2
# Changes are cheap one by one, and share turns.
CHANGES_AT_ONCE = 256
_COMMAND = "/dlq.v1.JobService/ExecJob"
_FORECASTS = frozenset(
    f"/dlq.v1.ForecastService/{name}" for name in ("EstimateJob", "CompareForecasts")
)


class CallLimits:
    """Counts the open calls of each identity. Used in the event loop's thread only."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._reads = Lines("reads")
        self._forecasts = Lines("forecasts", at_once=FORECASTS_AT_ONCE)
        self._changes = Lines("changes", at_once=CHANGES_AT_ONCE, in_line=CHANGES_AT_ONCE)
        self._streams: Counter[tuple[Role, str, bool]] = Counter()

    async def enter(self, call: Call) -> None:
        """Count a call. InvalidRequest: it has no deadline. TryAgain: too many others are open.

        A person's read or change waits until few enough of the same person are running.
        """
        assert call.identity is not None
        self._slices.came()
        if call.streaming:
            self._begin_stream(call.identity, call.path == _COMMAND)
            return
        check_deadline(call)
        if call.identity.role is not Role.NODE:
            await self._lines(call).enter(call.identity.name)

    def leave(self, call: Call) -> None:
        """The call that entered is over."""
        assert call.identity is not None
        if call.streaming:
            key = (call.identity.role, call.identity.name, call.path == _COMMAND)
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]
        elif call.identity.role is not Role.NODE:
            self._lines(call).leave(call.identity.name)

    def _begin_stream(self, identity: CertifiedIdentity, runs_command: bool) -> None:
        key = (identity.role, identity.name, runs_command)
        most, hint = (
            STREAMS_OF_A_PERSON,
            "each `wait`, `status -w`, `logs -f` and `events -w` has one",
        )
        if identity.role is Role.NODE:
            most = STREAMS_OF_A_NODE
        elif runs_command:
            most, hint = (
                COMMANDS_OF_A_PERSON,
                "each `exec`, `ssh`, `forward` and `notebook` has one",
            )
        if self._streams[key] >= most:
            raise TryAgain(
                f"{identity.name} has {most} streams open already",
                hint=hint,
                limit="streams",
                used=most,
            )
        self._streams[key] += 1

    def _lines(self, call: Call) -> Lines:
        if call.path in _FORECASTS:
            return self._forecasts
        return self._changes if call.method.changes else self._reads


def check_deadline(call: Call) -> None:
    """InvalidRequest: the client would wait for ever, which is a mistake of the client."""
    if call.context.time_remaining() is None:
        raise InvalidRequest("the call has no deadline; every unary call needs one")
