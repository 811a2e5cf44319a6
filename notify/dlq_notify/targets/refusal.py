"""Why a message has not arrived.

No word of it holds an address, because addresses of webhooks are secrets. It is logged, stored and
listed by `dlq-notify dead list`.
"""

from __future__ import annotations

from dlq_notify.wording import clean

LONGEST_FAULT = 200
LONGEST_AFTER_S = 3_600.0


class NotSent(Exception):
    """The target has not taken a message. `for_good`: it will not take it later either."""

    def __init__(self, fault: str, *, for_good: bool = False, after_s: float = 0.0) -> None:
        super().__init__(clean(fault)[:LONGEST_FAULT])
        self.for_good = for_good
        self.after_s = min(max(after_s, 0.0), LONGEST_AFTER_S)
        """Not before so many seconds, as the target asks."""

    @property
    def fault(self) -> str:
        return str(self.args[0])


def refused_by_site(fault: str) -> NotSent:
    """The configuration of `dlq-notify` forbids it. Somebody has to change that, or the rule."""
    return NotSent(f"refused here: {fault}", for_good=True)


def unreachable(fault: str) -> NotSent:
    """The line or the other side has a fault that may pass."""
    return NotSent(fault)


def answered(status: int, after_s: float = 0.0) -> NotSent:
    """A web server's answer that is no success. A redirect is a refusal: it is never followed."""
    passing = status >= 500 or status in (408, 425, 429)
    return NotSent(f"the server answered {status}", for_good=not passing, after_s=after_s)
