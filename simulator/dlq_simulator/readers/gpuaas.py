"""Instances of the GPU-as-a-Service scheduler: jobs with due dates, run times in a file beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlq_simulator.columns import BadValue, count, positive, seconds, word
from dlq_simulator.errors import DataError
from dlq_simulator.readers.dialect import Column, Dialect, Values
from dlq_simulator.readers.text import CsvRows, read_text

_TIMES = "SelectJobs_times.csv"
_NEEDS = ("UniqueJobsID", "GpuNumber", "ExecutionTime")


def _fastest(path: Path) -> Mapping[str, Values]:
    """For each job the GPUs and seconds of its fastest configuration, the fewest GPUs among equals."""
    beside = next(
        (
            path.with_name(name)
            for name in (f"{_TIMES}.gz", _TIMES)
            if path.with_name(name).exists()
        ),
        None,
    )
    if beside is None:
        raise DataError(
            str(path), f"there is no {_TIMES} beside it", "keep the files of an instance together"
        )
    rows = CsvRows(str(beside), read_text(str(beside)))
    line, header = next(rows, (1, []))
    if not set(_NEEDS) <= set(header):
        raise DataError(
            str(beside), f"the header wants {', '.join(_NEEDS)}", "copy it anew", line=line
        )
    best: dict[str, tuple[float, int]] = {}
    for line, cells in rows:
        row = dict(zip(header, cells, strict=False))
        try:
            found = (positive(row["ExecutionTime"]), count(row["GpuNumber"]))
        except (BadValue, KeyError) as error:
            raise DataError(
                str(beside), str(error), "correct the row and run again", line=line
            ) from error
        job_id = row["UniqueJobsID"]
        best[job_id] = min(found, best.get(job_id, found))
    return {
        job_id: {"num_gpus": gpus, "duration_s": time_s} for job_id, (time_s, gpus) in best.items()
    }


def _finish(values: Values) -> Values:
    if "num_gpus" not in values:
        raise BadValue(f"expected a job of {_TIMES}")
    due_s = values["due_s"] - values["submit_time_s"]
    if due_s <= 0:
        raise BadValue("expected a Deadline after the SubmissionTime")
    return {**values, "due_s": due_s}


GPUAAS = Dialect(
    name="gpuaas",
    marks=frozenset({"UniqueJobsID", "SubmissionTime", "Deadline", "Tardinessweight"}),
    columns={
        "UniqueJobsID": Column("job_id", word),
        "SubmissionTime": Column("submit_time_s", seconds),
        "Deadline": Column("due_s", positive),
        "Tardinessweight": Column("weight", positive),
        "Application": Column("model", word),
    },
    required=("UniqueJobsID", "SubmissionTime", "Deadline", "Tardinessweight"),
    silent=frozenset({"Images", "Epochs", "Batchsize", "Jobs", "MinExecTime", "MaxExecTime"}),
    finish=_finish,
    companion=_fastest,
    note="each job runs in its fastest configuration; node types are not chosen",
)
