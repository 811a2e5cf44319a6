"""How the processes do that the master asks: the planner and the twin, and how often they failed in
a row.

One failure is nothing: another process is started. After `MANY` failures in a row the next one will
fail too, and people have to know. The log says so as an error, and once more when it is well;
`/metrics`, `dlq doctor` and `dlq admin policy show` show it. Nothing of it is stored: a master that
starts again counts anew. Agents have no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlq_common.daemon.logs import get_logger

MANY = 3
LONGEST_CAUSE = 500
_log = get_logger("master.helpers")


class Health(NamedTuple):
    """Of one helper, for readers. `since_s`: of the first failure in the row; None: the last
    question was answered.
    """

    name: str  # planner | twin | policy
    failures: int = 0
    since_s: float | None = None
    last_error: str = ""

    @property
    def failing(self) -> bool:
        """It has failed so often in a row that it will not get well by being started again."""
        return self.failures >= MANY


@dataclass(slots=True)
class HelperHealth:
    """Counts failures in a row: deaths, time-outs, and answers of no use."""

    name: str
    failures: int = 0
    since_s: float | None = None
    last_error: str = ""

    @property
    def failing(self) -> bool:
        """As `Health.failing`."""
        return self.told().failing

    def told(self) -> Health:
        """As it is now."""
        return Health(self.name, self.failures, self.since_s, self.last_error)

    def failed(self, why: str, now_s: float) -> None:
        """Another question had no answer that was of use."""
        self.failures += 1
        self.since_s = now_s if self.since_s is None else self.since_s
        self.last_error = why[:LONGEST_CAUSE]
        if self.failures == MANY:
            _log.error(
                "helper_failing", helper=self.name, count=self.failures, cause=self.last_error
            )

    def answered(self) -> None:
        """An answer was of use."""
        if self.failing:
            _log.error(
                "helper_recovered", helper=self.name, count=self.failures, cause=self.last_error
            )
        self.failures, self.since_s, self.last_error = 0, None, ""
