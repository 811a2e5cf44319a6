"""The user's own time zone (TZ, else the host's), with its changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


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
