"""The envelope of every JSON answer, and the fields of messages in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import click
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from dlq_cli.words import enum_words
from dlq_common.text.instants import format_instant

SCHEMA = "dlq.v1"

Facts = dict[str, Any]
Value = Callable[[Any], Any]
M = TypeVar("M", bound=Message)


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


_KNOWN: dict[str, Value] = {
    "google.protobuf.Timestamp": instant,
    "google.protobuf.Duration": seconds,
}


def described(kind: type[M], fields: str, **own: Value) -> Callable[[M], Facts]:
    """The function that makes facts of such a message, with its keys in this order.

    A word of a description is a field, or `key=path.to.field`. Without a sign, an optional field
    that is not set is null. `?` makes every empty value null. `!` marks a field that is never null.
    Instants become text, durations seconds, and enums words. `x_s` and `x_seconds` are the field
    `x_duration`. The keys of a map are sorted.

    `own` gives the form of a nested message by its key. For any other key it gives the value from
    the whole message.
    """
    values = [_value(kind.DESCRIPTOR, word, own) for word in fields.split()]
    return lambda message: {key: value(message) for key, value in values}


def _value(kind: Any, word: str, own: dict[str, Value]) -> tuple[str, Value]:
    bare = word.rstrip("?!")
    given, _, path = bare.rpartition("=")
    *parents, name = path.split(".")
    for parent in parents:
        kind = kind.fields_by_name[parent].message_type
    key = given or name
    if name not in kind.fields_by_name:
        name = re.sub("_(s|seconds)$", "_duration", name)
    field = kind.fields_by_name.get(name)
    if key in own and (field is None or field.message_type is None or _is_map(field)):
        return key, own[key]
    value = _of_field(kind.fields_by_name[name], word[len(bare) :], own.get(key))
    if not parents:
        return key, value
    within = attrgetter(".".join(parents))
    return key, lambda message: value(within(message))


def _of_field(field: FieldDescriptor, sign: str, form: Value | None) -> Value:
    """The value of a field of a message that is there."""
    name, get = field.name, attrgetter(field.name)
    if _is_map(field):
        return lambda message: dict(sorted(get(message).items()))
    if field.message_type is not None:
        form = form or _KNOWN[field.message_type.full_name]
    if field.is_repeated:
        if form is None:
            return lambda message: list(get(message))
        return lambda message: [form(one) for one in get(message)]
    if field.enum_type is not None:
        words = enum_words(field.enum_type)
        return lambda message: words.get(get(message))
    if sign == "?":
        return lambda message: get(message) or None
    if form is None:
        if sign or not field.has_presence:
            return get
        return lambda message: get(message) if message.HasField(name) else None
    if sign:
        return lambda message: form(get(message))
    return lambda message: form(get(message)) if message.HasField(name) else None


def _is_map(field: FieldDescriptor) -> bool:
    """By protoc's name of the entry: to ask its options loads another 70 ms of protobuf."""
    return field.message_type is not None and field.message_type.name.endswith("Entry")
