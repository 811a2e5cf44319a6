"""Stored rules of notifications.

Addresses and keys are secrets of their owners. Logs, events and the audit do not hold them, and
`repr` leaves them out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST_OF_USER: Final = 20
_HIDDEN: Final = "..."


class NotifyRule(NamedTuple):
    """The events that a user is told of, and the target (docs/using/notifications.md).

    A rule goes with its user: the next person of that name has none of it.
    """

    rule_id: str  # "n1": never given twice
    user: str
    target: str  # a word of dlq_common.notices.TARGETS
    address: str
    events: tuple[str, ...]  # words of dlq_common.notices.NOTICES
    created_time_s: float
    signing_key: str = ""
    with_output: bool = False
    quiet_hours: str = ""
    time_zone: str = ""
    gather_s: float | None = None

    def __repr__(self) -> str:
        told = self._asdict() | {"address": _HIDDEN, "signing_key": _HIDDEN}
        return f"NotifyRule({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def number(self) -> int:
        """The number in its id."""
        return int(self.rule_id[1:])


def rules_of(rules: dict[str, NotifyRule], user: str) -> list[NotifyRule]:
    """The rules of a user, the oldest first."""
    return sorted(
        (rule for rule in rules.values() if rule.user == user), key=lambda rule: rule.number
    )
