"""The steps around every call, in order, so that handlers need none of them.

From outside to inside: exceptions become statuses, and the audit records the end. The door checks
the certificate, the audit accepts a change, and the limits of the caller hold it up. One object
does all of it: a context manager for each step cost a submission a tenth of its time.
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
    """Follows every call from its begin to its end (rpc/audit/audit.py)."""

    def begin(self, call: Call) -> None: ...
    def accept(self, call: Call) -> None: ...
    async def done(self, call: Call) -> None: ...
    def failed(self, call: Call, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Passage:
    """The steps around the calls of one port."""

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
        """The context in which the handler of a call runs."""
        return Passing(self, call)


class Passing:
    """One call between the door and its end."""

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
