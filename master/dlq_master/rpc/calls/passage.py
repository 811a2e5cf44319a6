"""The steps around every call, one behind the other: nothing of them is left to its handler.

From outside to inside: failures become statuses, and the audit hears of the end. The door looks at
the certificate, a change is accepted, and the limits of one caller keep it waiting. One object
stands for all of them: a context manager for each cost a submission a tenth of its time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.call_times import CallTimes
from dlq_master.rpc.calls.errors import Errors
from dlq_master.rpc.calls.open_calls import OpenCalls


class Hears(Protocol):
    """Hears of every call from its first moment to its end (rpc/audit/audit.py)."""

    def begin(self, call: Call) -> None: ...
    def accept(self, call: Call) -> None: ...
    async def done(self, call: Call) -> None: ...
    def failed(self, call: Call, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Passage:
    """The way of calls of one port to their handlers and back."""

    errors: Errors
    audit: Hears
    let_in: Callable[[Call], None]  # may refuse by raising; sets the caller
    enter: Callable[[Call], Awaitable[None]]  # likewise; may wait
    leave: Callable[[Call], None]  # for each call that has entered
    times: CallTimes
    open: OpenCalls
    account_due: Callable[[Call], Awaitable[object] | None] = lambda _call: None
    """The look-up of the caller's account, where one is due. The rights may be others then."""

    def of(self, call: Call) -> Passing:
        """This call passes: a context for its handler."""
        return Passing(self, call)


class Passing:
    """One call between its door and its end."""

    __slots__ = ("_call", "_passage", "_since_s")

    def __init__(self, passage: Passage, call: Call) -> None:
        self._passage = passage
        self._call = call

    async def __aenter__(self) -> None:
        passage, call = self._passage, self._call
        self._since_s = passage.times.begun(call)
        passage.audit.begin(call)
        try:
            passage.let_in(call)
            if (due := passage.account_due(call)) is not None:
                await due
                passage.let_in(call)
            passage.audit.accept(call)
            await passage.enter(call)
            if call.streaming:
                passage.open.entered(call)
        except BaseException as error:
            await self._failed(error)
            raise

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        passage, call = self._passage, self._call
        passage.leave(call)
        if call.streaming:
            passage.open.left(call)
            error = passage.open.refusal(call, error)
        if error is not None:
            await self._failed(error)
            return
        try:
            await passage.audit.done(call)
            passage.times.ended(call, self._since_s, None)
        except BaseException as unwritten:
            passage.times.ended(call, self._since_s, unwritten)
            await passage.errors.abort(call, unwritten)
            raise

    async def _failed(self, error: BaseException) -> None:
        self._passage.times.ended(self._call, self._since_s, error)
        try:
            self._passage.audit.failed(self._call, error)
        except BaseException as unwritten:
            await self._passage.errors.abort(self._call, unwritten)
            raise
        await self._passage.errors.abort(self._call, error)
