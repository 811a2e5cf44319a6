"""The open streams, whose rights are checked again once a right may have ended.

The door checks each call once, but a stream lasts for hours. When a right has ended, all open
streams are checked in the same moment. A stream without the right ends with the door's refusal,
which its client sees. An agent that is cut off so counts as silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_common.identity.pki import CertifiedIdentity

WRITING_S = 5.0
"""For a client that takes no more of its stream; then it hears nothing of the end."""
_log = get_logger("master.rpc")


class LastingCall(Protocol):
    """The parts of a call (call.py) that are used here."""

    streaming: bool
    identity: CertifiedIdentity | None
    cut: DlqError | None
    writing: bool


Check = Callable[[CertifiedIdentity], object]  # raises a DlqError for a holder without a right


class OpenCalls:
    """All open streams, each with the task that serves it."""

    def __init__(self, check: Check, lost: Callable[[], object] = lambda: None) -> None:
        """`lost` is called when a right may have ended, before the streams are checked."""
        self._check = check
        self._lost = lost
        self._tasks: dict[int, tuple[LastingCall, asyncio.Task[object]]] = {}

    def entered(self, call: LastingCall) -> None:
        """The present task serves this call from now on."""
        task = asyncio.current_task()
        if call.streaming and task is not None:
            self._tasks[id(call)] = call, task

    def left(self, call: LastingCall) -> None:
        """The call is over."""
        self._tasks.pop(id(call), None)

    def look(self) -> int:
        """End the streams whose callers have lost their right; return how many."""
        self._lost()
        cut = 0
        for call, task in list(self._tasks.values()):
            if call.cut is None and call.identity is not None:
                try:
                    self._check(call.identity)
                except DlqError as refusal:
                    call.cut = refusal
                    self._cut(call, task)
                    cut += 1
        if cut:
            _log.info("open_calls_cut", calls=cut)
        return cut

    def _cut(self, call: LastingCall, task: asyncio.Task[object]) -> None:
        """End a stream.

        If a task is cancelled while it writes, gRPC tells the client nothing. Such a call ends once
        its answer is written (surround.py).
        """
        if not call.writing:
            task.cancel()
            return
        asyncio.get_running_loop().call_later(WRITING_S, self._cut_at_last, call, task)

    def _cut_at_last(self, call: LastingCall, task: asyncio.Task[object]) -> None:
        if id(call) in self._tasks:
            task.cancel()

    def refusal(self, call: LastingCall, error: BaseException | None) -> BaseException | None:
        """Why a call has ended: the refusal if it was cut off, else `error`."""
        if call.cut is None or not isinstance(error, asyncio.CancelledError):
            return error
        if (task := asyncio.current_task()) is not None:
            task.uncancel()  # the refusal is still to be told
        return call.cut
