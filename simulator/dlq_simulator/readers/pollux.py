"""Pollux' workloads: applications without run times, so that the paper's classes stand in for
them.
"""

from __future__ import annotations

from dlq_simulator.columns import BadValue, count, seconds, word
from dlq_simulator.readers.dialect import Dialect, DialectColumn, Values

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
    },
    required=("name", "time", "application", "num_replicas"),
    silent=frozenset({"batch_size"}),
    finish=_finish,
    note="this format has no run times: the GPU-hours of each application's class "
    "(Pollux, table 1) stand in for them",
)
