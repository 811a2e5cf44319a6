"""Instances of the GPU-as-a-Service scheduler: jobs with due dates, run times in a file beside
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from dlq_simulator.columns import BadValue, count, positive, seconds, word
from dlq_simulator.errors import DataError
from dlq_simulator.readers.dialect import Dialect, DialectColumn, Values
from dlq_simulator.readers.text import FIX_ROW, CsvRows, read_text

T = TypeVar("T")

_TIMES = "SelectJobs_times.csv"
_NEEDS = ("UniqueJobsID", "GpuType", "GpuNumber", "ExecutionTime")


def times_beside(path: Path) -> Iterator[Path]:
    """Where the run times of an instance may be, the file that is taken first."""
    return (path.with_name(name) for name in (f"{_TIMES}.gz", _TIMES) if path.name)


def _times(path: Path) -> Mapping[str, Values]:
    """For each job all its run times, and the GPUs and seconds of its fastest configuration, the
    fewest GPUs among equals."""
    beside = next((file for file in times_beside(path) if file.exists()), None)
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
    every: dict[str, dict[tuple[str, int], float]] = {}
    for line, cells in rows:
        row = dict(zip(header, cells, strict=False))
        job_id = _cell(beside, line, row, "UniqueJobsID", word)
        found = (
            _cell(beside, line, row, "ExecutionTime", positive),
            _cell(beside, line, row, "GpuNumber", count),
        )
        best[job_id] = min(found, best.get(job_id, found))
        gpu_type = _cell(beside, line, row, "GpuType", word)
        every.setdefault(job_id, {})[gpu_type, found[1]] = found[0]
    return {
        job_id: {
            "num_gpus": gpus,
            "duration_s": time_s,
            "times_s": tuple((*key, found_s) for key, found_s in sorted(every[job_id].items())),
        }
        for job_id, (time_s, gpus) in best.items()
    }


def _cell(
    path: Path, line: int, row: Mapping[str, str], column: str, parse: Callable[[str], T]
) -> T:
    """One value of the companion; DataError names its line and column."""
    text = row.get(column, "").strip()
    try:
        if not text:
            raise BadValue("it is empty" if column in row else "the row ends before it")
        return parse(text)
    except BadValue as error:
        why = f"{error}, found {text[:40]!r}" if text else str(error)
        raise DataError(str(path), why, FIX_ROW, line=line, column=column) from error


def _finish(values: Values) -> Values:
    if "num_gpus" not in values:
        raise BadValue(f"expected a job of {_TIMES}", "job_id")
    due_s = values["due_s"] - values["submit_time_s"]
    if due_s <= 0:
        raise BadValue("expected a Deadline after the SubmissionTime", "due_s")
    return {**values, "due_s": due_s}


GPUAAS = Dialect(
    name="gpuaas",
    marks=frozenset({"UniqueJobsID", "SubmissionTime", "Deadline", "Tardinessweight"}),
    columns={
        "UniqueJobsID": DialectColumn("job_id", word),
        "SubmissionTime": DialectColumn("submit_time_s", seconds),
        "Deadline": DialectColumn("due_s", positive),
        "Tardinessweight": DialectColumn("weight", positive),
        "Application": DialectColumn("model", word),
    },
    required=("UniqueJobsID", "SubmissionTime", "Deadline", "Tardinessweight"),
    silent=frozenset({"Images", "Epochs", "Batchsize", "Jobs", "MinExecTime", "MaxExecTime"}),
    finish=_finish,
    companion=_times,
    note="only where all nodes are rented do the gpuaas policies and dlq choose node types; "
    "elsewhere each job runs in its fastest configuration",
)
