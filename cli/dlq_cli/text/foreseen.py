"""Uncertain instants, as text."""

from __future__ import annotations

from dlq.v1 import forecast_pb2
from dlq_cli.output.render import OutputLook, age
from dlq_common.text.instants import format_instant
from dlq_common.text.wire import from_timestamp

# The source of a run time, for people.
BASES = {
    "estimate": "its own estimate or measurement",
    "family": "earlier jobs of this user and name",
    "limit": "its time limit, and how much of theirs other jobs have used",
    "user": "earlier jobs of this user",
    "all": "earlier jobs of all users",
    "guess": "nothing: too few jobs have ended",
}


def short_range(range_: forecast_pb2.TimeRange, look: OutputLook) -> str:
    """For a column: `≈2h05m (1h10m-5h30m)` from now on a terminal, the likely instant elsewhere."""
    if not range_.HasField("likely_time"):
        after = _word(range_, "earliest_time", look)
        return f">{after}" if after else "?"
    likely = f"≈{_word(range_, 'likely_time', look)}"
    if not look.tty:
        return likely
    latest = _word(range_, "latest_time", look) or "?"
    return f"{likely} ({_word(range_, 'earliest_time', look) or '?'}-{latest})"


def long_range(range_: forecast_pb2.TimeRange, look: OutputLook) -> str:
    """For a sentence: `≈ in 2h05m (1h10m to 5h30m)`."""
    earliest, latest = _word(range_, "earliest_time", look), _word(range_, "latest_time", look)
    likely = _word(range_, "likely_time", look)
    if not likely:
        return f"later than {earliest}" if earliest else "later than the forecast reaches"
    until = f"{earliest or '?'} to {latest}" if latest else f"{earliest or '?'} or much later"
    return f"≈ {'in ' if look.tty else ''}{likely} ({until})"


def _word(range_: forecast_pb2.TimeRange, name: str, look: OutputLook) -> str:
    """The time from now on a terminal, absolute elsewhere; empty for an unknown one."""
    if not range_.HasField(name):  # type: ignore[arg-type]  # likewise
        return ""
    at_s = from_timestamp(getattr(range_, name))
    return age(at_s - look.now_s) if look.tty else format_instant(at_s)
