"""The time for the paper's program in one decision, shared by all its calls.

A decision runs the program several times: for each job that it judges, for each GPU type, and again
with one more lease. A limit for each call would not bound a hard batch, so one budget holds for the
decision. A call gets the time that is left; with none left there is no answer.

A policy has no clock. The planner passes one in, and then all time counts. Without a clock, as in a
replay, only a call that ends at its limit counts, with that limit. So the answers of a replay
depend on the host's speed only where a call ends at its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Limited(Protocol):
    """An answer that says whether its limit ended it."""

    @property
    def stopped(self) -> bool: ...


Answer = TypeVar("Answer", bound=Limited)


class ProgramBudget:
    """`limit_s`: the seconds of all calls together; 0: the program is never run."""

    def __init__(self, limit_s: float, clock: Callable[[], float] | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._spent_s = 0.0

    def left_s(self, spared: float = 0.0) -> float:
        """The seconds for the next call. `spared`: the share of the budget left to other calls."""
        return max(0.0, self._limit_s * (1.0 - spared) - self._spent_s)

    def charged(self, call: Callable[[float], Answer], spared: float = 0.0) -> Answer:
        """Run a call, which gets its limit, and charge its time."""
        limit_s, begun_s = self.left_s(spared), self._now_s()
        answer = call(limit_s)
        took_s = self._now_s() - begun_s
        self._spent_s += max(took_s, limit_s if answer.stopped else 0.0)
        return answer

    def _now_s(self) -> float:
        return 0.0 if self._clock is None else self._clock()
