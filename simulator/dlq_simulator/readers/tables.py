"""Dialects that are a table of columns: dlq's own, Tiresias', Muri's and Pollux'."""

from __future__ import annotations

from dlq_simulator.columns import OPTIONAL, REQUIRED, BadValue, count, seconds, whole, word
from dlq_simulator.readers.dialect import Dialect, DialectColumn, Values

DLQ = Dialect(
    name="dlq",
    marks=frozenset(REQUIRED),
    columns={name: DialectColumn(name, parse) for name, parse in {**REQUIRED, **OPTIONAL}.items()},
    required=tuple(REQUIRED),
)


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


# Pollux (OSDI'21), table 1: the class of each application in GPU-hours, S 0-1, M 1-10, L 10-100, XL
# 100-1000. These are the middles on a log scale (0.3 for S, whose lower end is 0.1).
_GPU_HOURS = {
    "cifar10": 0.316,
    "ncf": 0.316,
    "bert": 3.16,
    "deepspeech2": 3.16,
    "yolov3": 31.6,
    "imagenet": 316.0,
}


def _finish(values: Values) -> Values:
    gpu_hours = _GPU_HOURS.get(values["model"])
    if gpu_hours is None:
        raise BadValue(f"expected an application of {', '.join(sorted(_GPU_HOURS))}", "model")
    return {**values, "duration_s": round(gpu_hours * 3600 / values["num_gpus"])}


POLLUX = Dialect(
    name="pollux",
    marks=frozenset({"name", "time", "application", "num_replicas"}),
    columns={
        "name": DialectColumn("job_id", word),
        "time": DialectColumn("submit_time_s", seconds),
        "application": DialectColumn("model", word),
        "num_replicas": DialectColumn("num_gpus", count),
        "batch_size": DialectColumn("batch_size", count),
    },
    required=("name", "time", "application", "num_replicas"),
    finish=_finish,
    note="this format has no run times: the GPU-hours of each application's class "
    "(Pollux, table 1) stand in for them",
)
