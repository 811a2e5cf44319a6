"""The Tiresias simulator's job files: whole seconds, one model a job."""

from __future__ import annotations

from dlq_simulator.columns import count, seconds, whole, word
from dlq_simulator.readers.dialect import Column, Dialect
from dlq_simulator.readers.dlq import DLQ

TIRESIAS = Dialect(
    name="tiresias",
    marks=frozenset({"num_gpu", "submit_time", "duration"}),
    columns={
        **DLQ.columns,
        "job_id": Column("job_id", word),
        "num_gpu": Column("num_gpus", count),
        "submit_time": Column("submit_time_s", seconds),
        "duration": Column("duration_s", seconds),
        "model_name": Column("model", word),
        "iterations": Column("iterations", whole),
    },
    required=("job_id", "num_gpu", "submit_time", "duration"),
    # The gap to the job before: the submit times have it already.
    silent=frozenset({"interval"}),
)
