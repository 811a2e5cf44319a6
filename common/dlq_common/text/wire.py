"""Timestamp and Duration messages to and from seconds; the only float-to-wire rounding there is.

Both carry nanoseconds; we round to the nearest microsecond, which a float of today's epoch seconds
can still tell apart.
"""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_MICROS = 1_000_000


def to_timestamp(epoch_s: float) -> Timestamp:
    """UTC seconds since the epoch as a Timestamp."""
    seconds, micros = divmod(round(epoch_s * _MICROS), _MICROS)
    return Timestamp(seconds=seconds, nanos=micros * 1000)


def from_timestamp(timestamp: Timestamp) -> float:
    """A Timestamp as UTC seconds since the epoch."""
    return timestamp.seconds + timestamp.nanos / 1e9


def to_duration(seconds: float) -> Duration:
    """Seconds as a Duration; both parts carry the sign, as its contract demands."""
    sign = -1 if seconds < 0 else 1
    whole, micros = divmod(round(abs(seconds) * _MICROS), _MICROS)
    return Duration(seconds=sign * whole, nanos=sign * micros * 1000)


def from_duration(duration: Duration) -> float:
    """A Duration as seconds."""
    return duration.seconds + duration.nanos / 1e9
