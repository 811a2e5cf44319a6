"""The rules as they were last read from the master, and their quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dlq.v1 import job_service_pb2
from dlq.v1 import notify_service_pb2 as wire
from dlq_common.notices import NOTICES, check_hours
from dlq_common.text.wire import from_duration, from_timestamp

MINUTE_S = 60.0
_CLOCKS_S = 1.0  # instants of the wire are rounded


class Rule(NamedTuple):
    """A rule of a user. Its `repr` has no secret."""

    rule_id: str
    user: str
    target: str
    address: str
    words: tuple[str, ...]
    created_s: float
    owner_since_s: float
    signing_key: str = ""
    with_output: bool = False
    quiet: tuple[int, int] | None = None  # minutes of the day
    zone: str = ""
    gather_s: float | None = None

    def __repr__(self) -> str:
        return f"Rule({self.rule_id} of {self.user}: {self.target})"

    @property
    def server(self) -> str:
        """The host that takes its messages, or `mail`."""
        _, _, rest = self.address.partition("://")
        return rest.partition("/")[0].lower() or self.target

    def word_for(self, told: job_service_pb2.WatchEventsResponse) -> str:
        """The word of this rule that the event belongs to; empty: it is not told of it."""
        event, job = told.event, told.job
        if job.user != self.user or not told.HasField("job") or job.redacted:
            return ""
        if from_timestamp(event.event_time) < self.created_s - _CLOCKS_S:
            return ""
        if from_timestamp(job.submit_time) < self.owner_since_s - _CLOCKS_S:
            return ""  # of another person who had the name
        found = [word for word in self.words if event.kind in NOTICES[word].kinds]
        return found[-1] if found else ""  # the narrower one: `failed` stands behind `ended`

    def wakes_s(self, now_s: float) -> float:
        """When its quiet hours end; `now_s` outside of them."""
        if self.quiet is None:
            return now_s
        local = datetime.fromtimestamp(now_s, UTC).astimezone(self._zone())
        begin, end = self.quiet
        minute = 60 * local.hour + local.minute
        inside = begin <= minute < end if begin < end else not end <= minute < begin
        if not inside:
            return now_s
        wakes = local.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
        if wakes <= local:
            wakes = wakes.replace(tzinfo=None) + timedelta(days=1)
            wakes = wakes.replace(tzinfo=local.tzinfo)
        # A clock change may have the hour twice or not at all: never in the past, never far off.
        return max(now_s + MINUTE_S, min(wakes.timestamp(), now_s + 86_400.0 + 3_600.0))

    def _zone(self) -> tzinfo:
        try:
            return ZoneInfo(self.zone) if self.zone else UTC
        except (KeyError, OSError, ValueError):
            return UTC  # unknown on this host


class RuleBook:
    """All rules, by id and by user, as of `read_s`."""

    def __init__(self, rules: Iterable[Rule] = (), read_s: float = float("-inf")) -> None:
        self.read_s = read_s
        self.by_id = {rule.rule_id: rule for rule in rules}
        self._of_user: dict[str, list[Rule]] = {}
        for rule in self.by_id.values():
            self._of_user.setdefault(rule.user, []).append(rule)

    def of(self, user: str) -> Iterator[Rule]:
        """The rules of a user."""
        return iter(self._of_user.get(user, ()))

    def with_word(self, word: str) -> Iterator[Rule]:
        """The rules that name this word."""
        return (rule for rule in self.by_id.values() if word in rule.words)


def rule_of(message: wire.NotifyRule) -> Rule:
    """A rule as the master tells it. Words that only a newer master knows are left out."""
    quiet = None
    if message.quiet_hours:
        try:
            quiet = check_hours(message.quiet_hours)
        except ValueError:
            quiet = None
    told = set(message.events)
    return Rule(
        rule_id=message.rule_id,
        user=message.user,
        target=message.target,
        address=message.address,
        words=tuple(word for word in NOTICES if word in told),
        created_s=from_timestamp(message.create_time),
        owner_since_s=from_timestamp(message.owner_since_time),
        signing_key=message.signing_key,
        with_output=message.with_output,
        quiet=quiet,
        zone=message.time_zone,
        gather_s=from_duration(message.gather_duration)
        if message.HasField("gather_duration")
        else None,
    )
