"""The time of the paper's program in one decision: all its calls share one budget.

A decision asks the program several times: for each job that it judges, for each GPU type, and
again with a lease more. With a limit for each call a hard batch would have no end. So the budget
holds for the decision. A call gets what is left of it, and with nothing left there is no answer.

A policy asks no clock. The planner hands one in, and then all time counts. Without a clock, as in a
replay, only a call that ends at its limit counts, with that limit. So the answers of a replay
depend on the speed of the machine only where a call ends at its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Limited(Protocol):
    """An answer that says whether the limit ended it."""

    @property
    def stopped(self) -> bool: ...


Answer = TypeVar("Answer", bound=Limited)


class ProgramBudget:
    """`limit_s`: seconds of all calls together; 0: the program is not asked."""

    def __init__(self, limit_s: float, clock: Callable[[], float] | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._spent_s = 0.0

    def left_s(self, spared: float = 0.0) -> float:
        """For the next call. `spared`: the share of the budget that it leaves to others."""
        return max(0.0, self._limit_s * (1.0 - spared) - self._spent_s)

    def charged(self, call: Callable[[float], Answer], spared: float = 0.0) -> Answer:
        """The answer of a call, which is told its limit."""
        limit_s, begun_s = self.left_s(spared), self._now_s()
        answer = call(limit_s)
        took_s = self._now_s() - begun_s
        self._spent_s += max(took_s, limit_s if answer.stopped else 0.0)
        return answer

    def _now_s(self) -> float:
        return 0.0 if self._clock is None else self._clock()
