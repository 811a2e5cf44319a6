"""The envelope of every JSON answer, and times and durations in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click
from google.protobuf.duration_pb2 import Duration
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
