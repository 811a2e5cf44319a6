"""How long an answer of the planning process is waited for: by how long such answers took.

Without a limit the master would wait for a hung planner as long as for the hardest plan. The answer
about a deadline would wait too. After each timeout the limit doubles, so that a plan which does
take long is made in the end.
"""

from __future__ import annotations

from collections import deque

FACTOR = 10.0  # of the longest of the last answers
LEAST_S = 2.0
START_S = 8.0  # more, for a process that has to start and import its libraries
KEPT = 20  # answers to questions of each kind


class PlannerPatience:
    """`limit_s`: it is never more. Seconds."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._took: dict[str, deque[float]] = {}
        self._doubled = 0

    def of(self, stage: str, *, starting: bool) -> float:
        """For the next question of this kind; `starting`: it is the first that the process gets."""
        expected_s = FACTOR * max(self._took.get(stage, ()), default=0.0)
        patience_s = max(LEAST_S, expected_s) + (START_S if starting else 0.0)
        return float(min(self._limit_s, patience_s * 2.0**self._doubled))

    def answered(self, stage: str, took_s: float, *, starting: bool) -> None:
        """The answer came in time. The start of the process says nothing about the next one."""
        self._doubled = 0
        if not starting:
            self._took.setdefault(stage, deque(maxlen=KEPT)).append(took_s)

    def exhausted(self) -> None:
        self._doubled = min(self._doubled + 1, 10)
