"""Muri's traces: as Tiresias', in milliseconds, with an iteration's demand on each resource."""

from __future__ import annotations

from dlq_simulator.columns import count, seconds, whole, word
from dlq_simulator.readers.dialect import Dialect, DialectColumn


def _milliseconds(text: str) -> int | float:
    value = seconds(text) / 1000
    return int(value) if value.is_integer() else value


MURI = Dialect(
    name="muri",
    marks=frozenset({"num_gpu", "submit_time", "duration", "iteration_time"}),
    columns={
        "job_id": DialectColumn("job_id", word),
        "num_gpu": DialectColumn("num_gpus", count),
        "submit_time": DialectColumn("submit_time_s", _milliseconds),
        "iterations": DialectColumn("iterations", whole),
        "model_name": DialectColumn("model", word),
        "duration": DialectColumn("duration_s", _milliseconds),
    },
    required=("job_id", "num_gpu", "submit_time", "duration"),
    # Batch size, and the shares of storage, CPU and network that only Muri's own policy reads.
    silent=frozenset(
        {"batch_size", "interval", "iteration_time", "priority"}
        | {f"resource_time_{n}" for n in range(3)}
    ),
)
