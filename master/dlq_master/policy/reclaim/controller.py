"""How many servers an inference cluster lends, from how busy it is: head-room, and patience to
lend.

Aryl leaves that to the inference scheduler (section 4). This one follows a daily wave. Servers are
asked back as soon as the load needs them. They are lent only when the load could have spared them
for a while. So an unsteady load does not lend a server that it takes back at once.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

_HAIR = 1e-9  # so that 10 x (1 - 0.3) is 7


class Lender(NamedTuple):
    """`servers`: all that the inference cluster has. `headroom`: the share of them that stays idle
    for the next peak. `settle_s`: for so long servers must have been idle, beyond the head-room,
    before they are lent; 0: at once."""

    servers: int
    headroom: float = 0.05
    settle_s: float = 0.0

    def idle(self, busy: float) -> int:
        """Whole servers that a load leaves beyond the head-room."""
        return max(0, floor(self.servers * (1.0 - busy - self.headroom) + _HAIR))


class Lending(NamedTuple):
    """How many servers are lent, and the idle ones of late: (since when, how many), the last one
    now.
    """

    lent: int = 0
    idle: tuple[tuple[float, int], ...] = ()


def follow(lending: Lending, lender: Lender, at_s: float, busy: float) -> Lending:
    """The load is this from `at_s` on (later than before); how many are lent then."""
    now = lender.idle(busy)
    since_s = at_s - lender.settle_s
    # A value counts until the next one if that came within the time.
    late = [
        row
        for at, row in enumerate(lending.idle)
        if at + 1 == len(lending.idle) or lending.idle[at + 1][0] > since_s
    ]
    idle = (*late, (at_s, now)) if lender.settle_s else ((at_s, now),)
    safe = min(servers for _, servers in idle)
    if lender.settle_s and idle[0][0] > since_s:
        safe = 0  # nobody has watched for long enough
    return Lending(min(now, max(lending.lent, safe)), idle)
