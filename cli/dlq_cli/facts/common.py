"""The envelope of every JSON answer, and times and durations in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dlq_common.text.instants import format_instant

SCHEMA = "dlq.v1"

Facts = dict[str, Any]


def document(content: Mapping[str, Any]) -> str:
    """One stable JSON object with its schema, on one line."""
    return json.dumps({"schema": SCHEMA, **content}, separators=(",", ":"), ensure_ascii=False)


def instant(timestamp: Timestamp) -> str:
    """ISO 8601 in UTC."""
    return format_instant(timestamp.seconds + timestamp.nanos / 1e9)


def seconds(duration: Duration) -> float:
    """Seconds to the millisecond."""
    return round(duration.seconds + duration.nanos / 1e9, 3)
