"""The envelope of every JSON answer, and the fields of messages in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import click
from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from dlq_common.text.instants import format_instant

SCHEMA = "dlq.v1"

Facts = dict[str, Any]


def document(content: Mapping[str, Any]) -> str:
    """One stable JSON object with its schema, on one line."""
    return json.dumps({"schema": SCHEMA, **content}, separators=(",", ":"), ensure_ascii=False)


def tell(content: Mapping[str, Any], text: Callable[[], str], *, as_json: bool) -> None:
    """Print an answer: one JSON object, or its text for people."""
    shown = document(content) if as_json else text()
    click.echo(shown, nl=bool(shown) and not shown.endswith("\n"))


def instant(timestamp: Timestamp) -> str:
    """ISO 8601 in UTC."""
    return format_instant(timestamp.seconds + timestamp.nanos / 1e9)


def seconds(duration: Duration) -> float:
    """Seconds to the millisecond."""
    return round(duration.seconds + duration.nanos / 1e9, 3)


def facts_of(message: Message, names: str) -> Facts:
    """The named fields of a message, in this order.

    A field that is not set is null, and with `?` behind its name also an empty one. A time is
    ISO 8601 text. `X_s` and `X_seconds` are the field `X_duration`. The keys of a map are sorted.
    """
    return {key: read(message) for key, read in _readers(message.DESCRIPTOR, names)}


@cache
def _readers(kind: Descriptor, names: str) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((word.rstrip("?"), _reader(kind, word)) for word in names.split())


def _reader(kind: Descriptor, word: str) -> Callable[[Any], Any]:
    key = word.rstrip("?")
    name = key if key in kind.fields_by_name else re.sub("_(s|seconds)$", "_duration", key)
    field = kind.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda message: dict(sorted(getattr(message, name).items()))
    if field.is_repeated:
        return lambda message: list(getattr(message, name))
    if word.endswith("?"):
        return lambda message: getattr(message, name) or None
    if not field.has_presence:
        return lambda message: getattr(message, name)
    convert = {"Timestamp": instant, "Duration": seconds}.get(
        field.message_type.name if field.message_type else "", _as_it_is
    )
    return lambda message: (
        convert(getattr(message, name)) if message.HasField(name) else None  # type: ignore[operator]
    )


def _as_it_is(value: Any) -> Any:
    return value
