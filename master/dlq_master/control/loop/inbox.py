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

BY_S: Final = 0.05  # so long may a stimulus lie that nobody waits for
SEVERAL: Final = 4  # callers of one turn
GATHER_S: Final = 0.002
MOST_BY: Final = 64  # as many of them are a turn of their own: it stays short


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
        self._letters: deque[Envelope] = deque()
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
        self._letters.append(Envelope(stimulus, answer, arrived_s, note))
        self.wake()

    def put_by(self, stimulus: Stimulus, arrived_s: float) -> None:
        """Leave a stimulus that nobody waits for. It shares its turn with those of the next
        moment: a turn for each of a thousand heartbeats a second costs more than the heartbeats.
        """
        self._letters.append(Envelope(stimulus, None, arrived_s))
        if len(self._letters) >= MOST_BY:
            self.wake()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(BY_S, self.wake)

    def put_back(self, letters: Sequence[Envelope]) -> None:
        """The turn that took them had no time for these: they are the first of the next one."""
        if letters:
            self._letters.extendleft(reversed(letters))
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
        letters = self.take()
        self._callers = sum(letter.answer is not None for letter in letters)
        return letters

    def take(self) -> list[Envelope]:
        """Everything that has arrived, without waiting."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        letters = list(self._letters)
        self._letters.clear()
        return letters

    def __len__(self) -> int:
        return len(self._letters)


def _settle(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
