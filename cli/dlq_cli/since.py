"""`--since`: how far back ended jobs are shown."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from dlq_common.errors import InvalidRequest
from dlq_common.instants import parse_instant
from dlq_common.units import parse_span


def ended_within_s(text: str | None, now_s: float, default_s: int) -> int | None:
    """Seconds back from now; None for `all`. A span (`2d`) or an instant of the past."""
    if text is None:
        return default_s
    if text.strip().lower() == "all":
        return None
    try:
        return round(parse_span(text))
    except ValueError:
        pass
    try:
        then_s = parse_instant(text, now_s=now_s, zone=_local_zone(now_s))
    except ValueError:
        raise InvalidRequest(
            f"--since: {text[:64]!r} is not a time", hint="write 2d, 90m, 2026-12-01T08:00 or all"
        ) from None
    if then_s > now_s and ":" in text and "-" not in text:
        # A time of day names its next occurrence; looking back it is the last one.
        then_s -= 86_400
    if then_s > now_s:
        raise InvalidRequest(f"--since: {text[:64]!r} is in the future")
    return round(now_s - then_s)


def _local_zone(now_s: float) -> tzinfo:
    return datetime.fromtimestamp(now_s, UTC).astimezone().tzinfo or UTC
