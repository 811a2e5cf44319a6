"""The user's own time zone (TZ, else the host's), with its changes of the clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

# An instant of the master's in one of its sentences. An instant behind `--deadline` is to be typed
# again unchanged.
_INSTANT = re.compile(
    r"(?<![-\w:.=])(?<!--deadline )\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z(?![\w-])", re.ASCII
)
_shown_in: list[tzinfo | None] = [None]  # None: the viewer's own


class LocalZone(tzinfo):
    """Local time by the rules of the day in question, not by today's offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """See tzinfo."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not told apart."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """See tzinfo."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """See tzinfo."""
        return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def show_utc(*, yes: bool) -> None:
    """Whether people are shown UTC from now on, rather than their own zone (`--utc`)."""
    _shown_in[0] = UTC if yes else None


def local_text(epoch_s: float, zone: tzinfo | None = None) -> str:
    """An instant for people, in `zone` (None: the viewer's) and with it: `2026-11-23 23:30 CET`.
    Seconds stand there only where there are any.
    """
    at = datetime.fromtimestamp(round(epoch_s), UTC).astimezone(zone or _shown_in[0])
    clock = "%H:%M:%S" if at.second else "%H:%M"
    return f"{at.strftime(f'%Y-%m-%d {clock}')} {at.tzname()}"


def in_viewers_zone(sentence: str, zone: tzinfo | None = None) -> str:
    """A sentence of the master's with its instants as `local_text` has them."""
    return _INSTANT.sub(lambda found: _as_local(found, zone), sentence)


def _as_local(found: re.Match[str], zone: tzinfo | None) -> str:
    try:
        return local_text(datetime.fromisoformat(found[0]).timestamp(), zone)
    except (ValueError, OverflowError, OSError):
        return found[0]
