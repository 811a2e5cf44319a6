"""Writes a workload as a trace in dlq's own columns, and an inference load as a table."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import IO, Any

from dlq_simulator.generate.aryl import Load
from dlq_simulator.workload import Trace, TraceJob

_ALWAYS = ("job_id", "submit_time_s", "num_gpus", "duration_s")


def write_trace(file: IO[str], trace: Trace) -> None:
    """The required columns, then each that any job has something to say in."""
    rows = [asdict(job) for job in trace.jobs]
    plain = TraceJob(job_id="", submit_time_s=0, num_gpus=1, duration_s=0)
    defaults = asdict(plain)
    optional = [field.name for field in fields(TraceJob) if field.name not in _ALWAYS]
    told = [name for name in optional if any(row[name] != defaults[name] for row in rows)]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_ALWAYS, *told])
    for row in rows:
        writer.writerow([_text(row[name]) for name in (*_ALWAYS, *told)])


def write_loads(file: IO[str], loads: Iterable[Load]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["time_s", "busy"])
    writer.writerows(loads)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ";".join(f"{_text(delay)}:{_text(reward)}" for delay, reward in value)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
