"""Events and targets of notifications: one list for the master, the CLI and `dlq-notify`.

A word of `NOTICES` stands in rules for the kinds of events that it names. `dlq-notify` works out
`start_moved` itself; `events_lost` is about `dlq-notify`, and for operators. A rule stores words,
so a word stays for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit


class NoticeKind(NamedTuple):
    """A word of a rule: its meaning, and the kinds of events in the journal that it stands for."""

    meaning: str
    kinds: tuple[str, ...] = ()


NOTICES: Final[Mapping[str, NoticeKind]] = {
    "pending": NoticeKind("it has been accepted, and waits", ("job_admitted",)),
    "started": NoticeKind("it runs", ("job_ran",)),
    "requeued": NoticeKind("it waits again, and why", ("job_requeued",)),
    "ended": NoticeKind(
        "it has ended, however",
        ("job_completed", "job_cancelled", "job_failed", "job_timed_out"),
    ),
    "failed": NoticeKind(
        "it has failed, or is held because its attempts were lost",
        ("job_failed", "job_timed_out", "job_poisoned"),
    ),
    "preempted": NoticeKind(
        "it leaves its GPUs: for whom, why, and at what cost", ("job_displaced",)
    ),
    "reclaim": NoticeKind("its servers are taken back for inference", ("job_reclaimed",)),
    "promise_at_risk": NoticeKind(
        "its promise may not be kept: why, and the cheapest change", ("promise_at_risk",)
    ),
    "promise_safe": NoticeKind("its promise is safe again", ("promise_safe",)),
    "promise_missed": NoticeKind(
        "its promise was missed, broken or dropped",
        ("promise_missed", "promise_broken", "promise_dropped"),
    ),
    "time_limit": NoticeKind("its time limit is near", ("attempt_warned",)),
    "idle": NoticeKind("it holds GPUs and does not use them, by a rule of the site", ("job_idle",)),
    "stalled": NoticeKind(
        "its steps have stopped, with the rank that fell behind; or they go on",
        ("job_stalled", "job_stall_over"),
    ),
    "straggler": NoticeKind(
        "it makes a node suspected to slow its steps down", ("node_straggler",)
    ),
    "start_moved": NoticeKind("its estimated start has moved by half of the wait"),
    "events_lost": NoticeKind("for operators: events were cut before dlq-notify had read them"),
}  # fmt: skip
FOR_OPERATORS: Final = frozenset({"events_lost"})
TEST_KIND: Final = "notify_rule_tested"  # the event by which a test is asked for
RULE_KINDS: Final = ("notify_rule_added", "notify_rule_removed", TEST_KIND)
MAIL: Final = "mail"
TARGETS: Final[Mapping[str, str]] = {
    MAIL: "a mail to this address",
    "slack": "an incoming webhook of Slack",
    "mattermost": "an incoming webhook of Mattermost",
    "teams": "a workflow of Microsoft Teams",
    "webhook": "a signed call of your own program",
}
LONGEST_ADDRESS: Final = 2_000
_MAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


def check_address(target: str, address: str) -> str:
    """The address, fit for this target. ValueError otherwise; its words do not repeat a secret."""
    if len(address) > LONGEST_ADDRESS:
        raise ValueError(f"an address has at most {LONGEST_ADDRESS} characters")
    if target == MAIL:
        if not _MAIL.fullmatch(address):
            raise ValueError("this is not a mail address, such as ada@example.org")
        return address
    if not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError("a web address has printable ASCII characters alone")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError("this is not a web address") from None
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        raise ValueError("this is not a web address, such as https://hooks.example.org/T/B/x")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a web address here has no user and no password")
    return address


def check_hours(text: str) -> tuple[int, int]:
    """Quiet hours such as "22:00-07:00", in minutes of the day. ValueError otherwise."""
    found = _HOURS.fullmatch(text)
    if found is None:
        raise ValueError("quiet hours are written as 22:00-07:00")
    hour, minute, until_hour, until_minute = map(int, found.groups())
    begin, end = 60 * hour + minute, 60 * until_hour + until_minute
    if begin == end:
        raise ValueError("quiet hours end at another time than they begin")
    return begin, end
