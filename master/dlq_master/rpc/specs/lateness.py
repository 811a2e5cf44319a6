"""The cost of being late, on the wire."""

from __future__ import annotations

import math

from dlq.v1.job_pb2 import JobSpec
from dlq_common.job_fields.limits import refused
from dlq_common.text.units import LONGEST_DURATION_S
from dlq_common.text.wire import from_duration, from_timestamp
from dlq_master.control.stimuli import AskedLateness

LATEST_S = 32_503_680_000  # the year 3000
MOST_PER_HOUR = 1e12
SIZES = (1, 2, 4, 8)
_HOUR_S = 3600.0


def check_lateness(spec: JobSpec) -> None:
    """Whether it could be meant."""
    if not spec.HasField("lateness"):
        return
    late = spec.lateness
    if late.WhichOneof("due") is None:
        raise refused("lateness.due_time", "must say when it is due")
    if late.HasField("due_duration"):
        after_s = from_duration(late.due_duration)
        if not 0 < after_s <= LONGEST_DURATION_S:
            raise refused("lateness.due_duration", "must be above 0, and not longer than years")
    elif not 0 < late.due_time.seconds <= LATEST_S:
        raise refused("lateness.due_time", "must be an instant between 1970 and the year 3000")
    if not (math.isfinite(late.weight_per_hour) and 0 < late.weight_per_hour <= MOST_PER_HOUR):
        raise refused(
            "lateness.weight_per_hour", f"must be above 0, and not above {MOST_PER_HOUR:g}"
        )


def with_sizes(spec: JobSpec) -> JobSpec:
    """A job that names no number of GPUs runs on any of `SIZES` of one node: as many as are worth
    it. The spec itself if it does."""
    if not is_sized(spec):
        return spec
    for name in ("elastic", "roles"):
        if spec.HasField(name):
            raise refused("resources.gpu_count", f"must be said with {name}")
    if spec.deadlines or spec.resources.HasField("node_count"):
        raise refused("resources.gpu_count", "must be said with deadlines, and with a node_count")
    filled = JobSpec()
    filled.CopyFrom(spec)
    filled.resources.gpu_count = SIZES[0]
    filled.elastic.gpu_counts.extend(SIZES)
    return filled


def is_sized(spec: JobSpec) -> bool:
    """Whether its number of GPUs is chosen for it."""
    return spec.HasField("lateness") and not spec.resources.gpu_count


def lateness_of(spec: JobSpec) -> AskedLateness | None:
    """The lateness of the spec."""
    if not spec.HasField("lateness"):
        return None
    late, weight = spec.lateness, spec.lateness.weight_per_hour / _HOUR_S
    if late.HasField("due_time"):
        return AskedLateness(weight, at_s=from_timestamp(late.due_time))
    return AskedLateness(weight, after_s=from_duration(late.due_duration))
