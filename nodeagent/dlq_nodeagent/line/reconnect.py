"""When to dial the master again: spread evenly after a loss, then ever more seldom."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectSettings:
    """Seconds. The Welcome of the master replaces `jitter_s`."""

    first_try_s: float = 0.5
    jitter_s: float = 15.0
    longest_s: float = 15.0


class Reconnect:
    """Counts failures. After a session is lost comes one short try, then one within the jitter, so
    that thousands of agents do not return in one second. Later pauses double, up to a cap.
    """

    def __init__(self, settings: ReconnectSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._failures = 0
        self.jitter_s = settings.jitter_s

    def succeeded(self) -> None:
        """The master welcomed us."""
        self._failures = 0

    def delay_s(self) -> float:
        """How long to wait after one more failure or loss."""
        self._failures = min(self._failures + 1, 32)
        if self._failures == 1:
            longest_s = min(self._settings.first_try_s, self.jitter_s)
        else:
            doubled_s = max(self.jitter_s, self._settings.first_try_s) * 2.0 ** (self._failures - 2)
            longest_s = min(doubled_s, self._settings.longest_s)
        return self._rng.uniform(0.0, longest_s)
