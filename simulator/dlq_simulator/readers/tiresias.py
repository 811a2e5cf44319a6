"""The Tiresias simulator's job files: whole seconds, one model a job."""

from __future__ import annotations

from dlq_simulator.columns import count, seconds, whole, word
from dlq_simulator.readers.dialect import Dialect, DialectColumn
from dlq_simulator.readers.dlq import DLQ

TIRESIAS = Dialect(
    name="tiresias",
    marks=frozenset({"num_gpu", "submit_time", "duration"}),
    columns={
        **DLQ.columns,
        "job_id": DialectColumn("job_id", word),
        "num_gpu": DialectColumn("num_gpus", count),
        "submit_time": DialectColumn("submit_time_s", seconds),
        "duration": DialectColumn("duration_s", seconds),
        "model_name": DialectColumn("model", word),
        "iterations": DialectColumn("iterations", whole),
    },
    required=("job_id", "num_gpu", "submit_time", "duration"),
    # The gap to the job before: the submit times have it already.
    silent=frozenset({"interval"}),
)
