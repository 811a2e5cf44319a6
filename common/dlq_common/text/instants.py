"""Instants as people write and read them; inside dlq an instant is UTC seconds since the epoch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from dlq_common.text.units import DAY, HOUR, MINUTE, WEEK, parse_span

_NOW_PLUS = re.compile(r"now(?:\s*\+\s*(\S+))?", re.IGNORECASE)
_COUNT_AND_WORD = re.compile(r"(\d+)(second|minute|hour|day|week)s?", re.IGNORECASE | re.ASCII)
_WORDS = {"second": 1, "minute": MINUTE, "hour": HOUR, "day": DAY, "week": WEEK}
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
# Slurm's dates: 010127, 0101, 01/01/27, 01.01.2027, each perhaps with a time of day behind `-`.
_DATE = re.compile(
    r"(?:(\d{2})(\d{2})(\d{2})?|(\d{1,2})([/.])(\d{1,2})(?:\5(\d{2}|\d{4}))?)"
    r"(?:-(\d{1,2}):(\d{2})(?::(\d{2}))?)?",
    re.ASCII,
)
_DAILY = {
    "midnight": (0, 0, 0), "tomorrow": (0, 0, 0), "elevenses": (11, 0, 0), "noon": (12, 0, 0),
    "fika": (15, 0, 0), "teatime": (16, 0, 0),
}  # fmt: skip
LATEST_S = 32_503_680_000  # the year 3000
_FORMS = "write HH:MM, 2026-12-01T08:00, now+2hours or now+90m"


def format_instant(epoch_s: float) -> str:
    """ISO 8601 in UTC with milliseconds: `2026-11-20T10:33:00.250Z`."""
    minutes, milliseconds = divmod(round(epoch_s * 1000), 60_000)
    return f"{_minute(minutes)}:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}Z"


@lru_cache(4_096)  # lists show many instants of the same minutes
def _minute(since_epoch: int) -> str:
    instant = datetime.fromtimestamp(since_epoch * 60, UTC)
    return instant.isoformat(timespec="minutes").removesuffix("+00:00")


def parse_instant(text: str, *, now_s: float, zone: tzinfo) -> float:
    """The instant that `text` names, for --begin, --deadline and --since.

    A time of day is the next such time, and so are `noon` and `midnight` (or `tomorrow`); `today`
    began at the last midnight. A bare number behind `now+` is seconds, as in Slurm. A date without
    an offset is in `zone`, the caller's own. Slurm's dates (010127, 01/01/27) begin with the month,
    and without a year they are the next such day. ValueError names the forms, or the years that an
    instant may be in.
    """
    at_s = _instant_s(text, now_s, zone)
    if not 0 <= at_s < LATEST_S:  # what a calendar can show in every zone
        raise ValueError(f"{text!r} is not an instant between 1970 and the year 3000")
    return at_s


def _instant_s(text: str, now_s: float, zone: tzinfo) -> float:
    compact = text.strip()
    if found := _NOW_PLUS.fullmatch(compact):
        return now_s + (_offset(found[1], text) if found[1] else 0.0)
    if compact.lower() == "today":
        midnight = datetime.fromtimestamp(now_s, zone).replace(hour=0, minute=0, second=0)
        return midnight.replace(microsecond=0).timestamp()
    if compact.lower() in _DAILY:
        return _next_time_of_day(text, _DAILY[compact.lower()], now_s, zone)
    if found := _TIME_OF_DAY.fullmatch(compact):
        return _next_time_of_day(text, [int(part or 0) for part in found.groups()], now_s, zone)
    if found := _DATE.fullmatch(compact):
        return _on_date(text, found, now_s, zone)
    try:
        instant = datetime.fromisoformat(compact)
    except ValueError:
        raise ValueError(f"{text!r} is not an instant: {_FORMS}") from None
    aware = instant if instant.tzinfo else instant.replace(tzinfo=zone)
    try:
        return aware.timestamp()
    except (OverflowError, ValueError):  # the years 1 and 9999, in zones where they end
        return -1.0


def _offset(offset: str, text: str) -> float:
    if found := _COUNT_AND_WORD.fullmatch(offset):
        return float(found[1]) * _WORDS[found[2].lower()]
    if offset.isdecimal() and offset.isascii() and len(offset) < 10:
        return float(offset)
    try:
        return parse_span(offset)
    except ValueError:
        raise ValueError(f"{text!r} is not an instant: {_FORMS}") from None


def _on_date(text: str, found: re.Match[str], now_s: float, zone: tzinfo) -> float:
    month, day = int(found[1] or found[4]), int(found[2] or found[6])
    year = found[3] or found[7]
    hour, minute, second = (int(part or 0) for part in found.groups()[7:])
    today = datetime.fromtimestamp(now_s, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    years = [int(year) % 100 + 2000] if year else [today.year, today.year + 1]
    try:
        days = [today.replace(one, month, day, hour, minute, second) for one in years]
    except ValueError:
        raise ValueError(f"{text!r} is not a date (month, day, year): {_FORMS}") from None
    return next((one for one in days if one >= today), days[-1]).timestamp()


def _next_time_of_day(text: str, parts: Sequence[int], now_s: float, zone: tzinfo) -> float:
    hour, minute, second = parts
    today = datetime.fromtimestamp(now_s, zone)
    try:
        instant = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        raise ValueError(f"{text!r} is not a time of day: {_FORMS}") from None
    return (instant if instant > today else instant + timedelta(days=1)).timestamp()
