"""The cost of lateness, on the wire."""

from __future__ import annotations

from datetime import tzinfo

from dlq.v1 import job_pb2
from dlq_common.job_fields.reading.deadlines import Due
from dlq_common.job_fields.reading.lateness import LatenessSpec
from dlq_common.text.instants import format_instant, parse_instant
from dlq_common.text.wire import from_duration, to_duration, to_timestamp


def lateness_message(asked: LatenessSpec) -> job_pb2.LatenessSpec:
    """The message to send, without an instant (`put_due`)."""
    message = job_pb2.LatenessSpec(weight_per_hour=asked.weight_per_hour)
    if asked.due.after_s is not None:
        message.due_duration.CopyFrom(to_duration(asked.due.after_s))
    return message


def put_due(
    message: job_pb2.LatenessSpec, asked: LatenessSpec, *, now_s: float, zone: tzinfo
) -> None:
    """Enter the instant that is meant at the submission."""
    if asked.due.after_s is None:
        at_s = parse_instant(asked.due.text, now_s=now_s, zone=zone)
        message.due_time.CopyFrom(to_timestamp(at_s))


def stored_lateness(message: job_pb2.LatenessSpec) -> LatenessSpec:
    """The submitted lateness, from the master's stored form."""
    due = Due(after_s=from_duration(message.due_duration))
    if message.HasField("due_time"):
        at = message.due_time
        due = Due(text=format_instant(at.seconds + at.nanos / 1e9))
    return LatenessSpec(due, message.weight_per_hour)
