"""The fence of a leading master: its database, its timeline and its epoch.

`system` is the identifier of a PostgreSQL cluster: one `initdb` made it. `timeline` grows with each
promotion of a standby, and `epoch` with each leader. A master that keeps its own database has an
empty system, and its epoch alone counts. Agents and standbys remember the highest fence they have
seen, and obey nothing below it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class LeaderFence(NamedTuple):
    """One leadership. A later one of the same system has a higher epoch, and no older timeline."""

    system: str = ""
    timeline: int = 0
    epoch: int = 0

    def text(self) -> str:
        """For people: `epoch 7 of 7391…/2`, or `epoch 7` where a master has its own database."""
        where = f" of {self.system}/{self.timeline}" if self.system else ""
        return f"epoch {self.epoch}{where}"


def refusal(known: LeaderFence, told: LeaderFence, former: Container[str] = ()) -> str:
    """Why a leader must not be obeyed after another one was; "" when it may be.

    `former`: systems whose place the told one has taken. An operator has said so, because no
    number can: two systems do not know of each other.
    """
    if told.system != known.system:
        # A master with a database of its own may move into PostgreSQL, and nobody moves back.
        if not known.system or known.system in former:
            return ""
        other = f"the system {told.system}" if told.system else "a master without a system"
        return f"{other} is not {known.system}, whose master was obeyed before"
    if told.timeline < known.timeline:
        return f"timeline {told.timeline} is older than {known.timeline}"
    if told.epoch < known.epoch:
        return f"epoch {told.epoch} is lower than {known.epoch}"
    if told.timeline > known.timeline and told.epoch == known.epoch:
        # Each leader raises the epoch: this database had not heard of the raise.
        return f"epoch {told.epoch} was given on timeline {known.timeline} already"
    return ""


def later(known: LeaderFence, told: LeaderFence) -> LeaderFence:
    """The fence to remember after a leader was obeyed."""
    if told.system != known.system:
        return told
    return max(known, told)
