"""Microsoft's Philly log, condensed to a CSV with calendar times or raw as `cluster_job_log`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dlq_simulator.columns import BadValue, count, seconds, word
from dlq_simulator.readers.dialect import Column, Dialect, SkipRow, Values


def calendar(text: str) -> int:
    """A date and time as whole seconds of some calendar without summer time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue("expected a time such as 2017-10-09 10:30:41") from None
    return int(moment.replace(tzinfo=UTC).timestamp())


PHILLY = Dialect(
    name="philly",
    marks=frozenset({"timestamp", "duration", "num_gpus", "cluster"}),
    columns={
        "timestamp": Column("submit_time_s", calendar),
        "duration": Column("duration_s", seconds),
        "num_gpus": Column("num_gpus", count),
        "cluster": Column("vc", word),
        "job_id": Column("job_id", word),
        "user": Column("user", word),
        "status": Column("status", word),
    },
    required=("timestamp", "duration", "num_gpus"),
    silent=frozenset({"gpu_time"}),
    rebase=True,
)


def is_raw_log(text: str) -> bool:
    return text[:64].lstrip().startswith("[")


def raw_log(text: str) -> Iterator[Values | SkipRow]:
    """The jobs of a raw log, times on a calendar; ValueError when it is not one."""
    entries = json.loads(text)
    for entry in entries:
        if not (isinstance(entry, Mapping) and "attempts" in entry and "submitted_time" in entry):
            raise ValueError("an entry has no attempts or no submitted_time")
        yield _entry(entry)


def _entry(entry: Mapping[str, Any]) -> Values | SkipRow:
    attempts: Sequence[Mapping[str, Any]] = entry["attempts"]
    ran = [a for a in attempts if a.get("start_time") and a.get("end_time")]
    gpus = sum(len(node.get("gpus", ())) for a in ran[:1] for node in a.get("detail", ()))
    if not ran or not gpus:
        return SkipRow("no attempt with GPUs has begun and ended")
    duration_s = sum(calendar(a["end_time"]) - calendar(a["start_time"]) for a in ran)
    return {
        "job_id": str(entry.get("jobid", "")),
        "user": entry.get("user"),
        "vc": entry.get("vc"),
        "status": entry.get("status"),
        "submit_time_s": calendar(entry["submitted_time"]),
        "num_gpus": gpus,
        "duration_s": max(0, duration_s),
    }
