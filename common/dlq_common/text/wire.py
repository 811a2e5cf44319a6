"""Fields of messages: values as fields and back, and the only float-to-wire rounding there is.

Timestamps and Durations carry nanoseconds; we round to the nearest microsecond, which a float of
today's epoch seconds can still tell apart.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

_MICROS = 1_000_000
M = TypeVar("M", bound=Message)


@overload
def to_timestamp(epoch_s: float) -> Timestamp: ...
@overload
def to_timestamp(epoch_s: float | None) -> Timestamp | None: ...
def to_timestamp(epoch_s: float | None) -> Timestamp | None:
    """UTC seconds since the epoch as a Timestamp; None, an unset field, for None."""
    if epoch_s is None:
        return None
    seconds, micros = divmod(round(epoch_s * _MICROS), _MICROS)
    return Timestamp(seconds=seconds, nanos=micros * 1000)


def from_timestamp(timestamp: Timestamp) -> float:
    """A Timestamp as UTC seconds since the epoch."""
    return timestamp.seconds + timestamp.nanos / 1e9


@overload
def to_duration(seconds: float) -> Duration: ...
@overload
def to_duration(seconds: float | None) -> Duration | None: ...
def to_duration(seconds: float | None) -> Duration | None:
    """Seconds as a Duration, None for None; both parts carry the sign, as its contract demands."""
    if seconds is None:
        return None
    sign = -1 if seconds < 0 else 1
    whole, micros = divmod(round(abs(seconds) * _MICROS), _MICROS)
    return Duration(seconds=sign * whole, nanos=sign * micros * 1000)


def from_duration(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def said(message: Message, name: str) -> Any:
    """A field's value, or None where it is unset; Timestamps and Durations in seconds."""
    if not message.HasField(name):
        return None
    value = getattr(message, name)
    kind = type(value)
    return value.seconds + value.nanos / 1e9 if kind is Duration or kind is Timestamp else value


def filled(kind: type[M], value: Any, /, **others: Any) -> M:
    """A message with every field that a NamedTuple or dataclass has under the same name. `others`
    are the fields that have another name or form there; None is an unset field.
    """
    for name in _shared(kind, type(value)):  # type: ignore[arg-type] # classes are hashable
        if name not in others:
            others[name] = getattr(value, name)
    return kind(**others)


@cache
def _shared(kind: type[Message], value: Any) -> tuple[str, ...]:
    own = [one.name for one in fields(value)] if is_dataclass(value) else value._fields
    return tuple(name for name in own if name in kind.DESCRIPTOR.fields_by_name)
