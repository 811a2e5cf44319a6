"""The one door into the loop: stimuli wait here for the next turn.

A turn costs as much as several requests: its plan, its transaction and its sync. Callers that were
answered together come again together. So after a turn of several callers the next one waits a
moment, and takes them all. Callers who come one at a time never wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dlq_master.control.stimuli import Stimulus
from dlq_master.control.stimuli.audit_note import AuditNote

BY_S: Final = 0.05  # the longest wait of a stimulus without a caller
MOST_BY: Final = 64  # stimuli without a caller that make a turn due at once
SEVERAL: Final = 4  # callers of one turn; after as many the next turn waits for GATHER_S
GATHER_S: Final = 0.002


class Envelope(NamedTuple):
    """A stimulus, the caller that waits for its answer (None: none), and when it arrived (None: in
    this turn).
    """

    stimulus: Stimulus
    answer: "asyncio.Future[Any] | None"
    arrived_s: float | None = None
    note: AuditNote | None = None  # the audit's line of the call that asked


class Inbox:
    """A queue that is emptied whole. Used from the loop's thread only."""

    def __init__(self) -> None:
        self._envelopes: deque[Envelope] = deque()
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None  # of a turn that waits
        self._later: asyncio.TimerHandle | None = None
        self._callers = 0  # of the last turn

    def put(
        self,
        stimulus: Stimulus,
        answer: "asyncio.Future[Any] | None" = None,
        arrived_s: float | None = None,
        note: AuditNote | None = None,
    ) -> None:
        """Leave a stimulus for the next turn."""
        self._envelopes.append(Envelope(stimulus, answer, arrived_s, note))
        self.wake()

    def put_by(self, stimulus: Stimulus, arrived_s: float) -> None:
        """Leave a stimulus without a caller. It waits up to BY_S for others to share its turn: at
        a thousand heartbeats a second, turns would cost more than the heartbeats.
        """
        self._envelopes.append(Envelope(stimulus, None, arrived_s))
        if len(self._envelopes) >= MOST_BY:
            self.wake()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(BY_S, self.wake)

    def put_back(self, envelopes: Sequence[Envelope]) -> None:
        """Return envelopes that a turn had no time for: they come first in the next turn."""
        if envelopes:
            self._envelopes.extendleft(reversed(envelopes))
            self.wake()

    def wake(self) -> None:
        """Have a turn even if nothing has arrived."""
        self._woken = True
        if self._waiter is not None:
            _settle(self._waiter)

    async def drain(self, timeout_s: float) -> list[Envelope]:
        """Everything that has arrived, or nothing after `timeout_s` on the monotonic clock."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _settle, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        if self._callers >= SEVERAL:
            await asyncio.sleep(GATHER_S)
        self._woken = False
        envelopes = self.take()
        self._callers = sum(envelope.answer is not None for envelope in envelopes)
        return envelopes

    def take(self) -> list[Envelope]:
        """Everything that has arrived, without waiting."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        envelopes = list(self._envelopes)
        self._envelopes.clear()
        return envelopes

    def __len__(self) -> int:
        return len(self._envelopes)


def _settle(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
