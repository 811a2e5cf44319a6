"""`--since` and `--until`: how far back ended jobs are shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import parse_instant
from dlq_common.text.units import DAY, HOUR, MINUTE, WEEK, parse_span

_DAYS_BACK = {"today": 0, "midnight": 0, "yesterday": 1}
_NOW_MINUS = re.compile(r"now-(\d{1,9})(minute|hour|day|week)s?", re.ASCII)
_WORDS = {"minute": MINUTE, "hour": HOUR, "day": DAY, "week": WEEK}


def ended_within_s(text: str | None, now_s: float, default_s: int) -> int | None:
    """Seconds back from now; None for `all`. A span (`2d`) or an instant of the past."""
    if text is None:
        return default_s
    if text.strip().lower() == "all":
        return None
    then_s = past_instant(text, now_s, "--since", "write 2d, 90m, 2026-12-01T08:00 or all")
    if then_s > now_s:
        raise InvalidRequest(f"--since: {text[:64]!r} is in the future")
    return round(now_s - then_s)


def past_instant(text: str, now_s: float, flag: str, hint: str) -> float:
    """An instant, usually of the past: how long ago, a day's name, or when; in the caller's
    zone.
    """
    word = text.strip().lower()
    if word in _DAYS_BACK:
        return midnight(now_s, _DAYS_BACK[word])
    try:
        return now_s - parse_span(word.removeprefix("now-"))
    except ValueError:
        pass
    if found := _NOW_MINUS.fullmatch(word):
        return now_s - int(found[1]) * _WORDS[found[2]]
    try:
        then_s = parse_instant(text, now_s=now_s, zone=_local_zone(now_s))
    except ValueError:
        raise InvalidRequest(f"{flag}: {text[:64]!r} is not a time", hint=hint) from None
    if then_s > now_s and ":" in text and "-" not in text:
        # A time of day names its next occurrence; looking back it is the last one.
        then_s -= DAY
    return then_s


def midnight(now_s: float, days_back: int = 0) -> float:
    """When today began where the caller is, or a day before it."""
    today = datetime.fromtimestamp(now_s, _local_zone(now_s))
    day = (today - timedelta(days=days_back)).replace(tzinfo=None)
    # Made anew without a zone: the day may have begun before the clocks were changed.
    return day.replace(hour=0, minute=0, second=0, microsecond=0).astimezone().timestamp()


def _local_zone(now_s: float) -> tzinfo:
    return datetime.fromtimestamp(now_s, UTC).astimezone().tzinfo or UTC
