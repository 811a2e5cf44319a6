"""Reads a trace: CSV (optionally .gz) with a header, one job a row, times in seconds."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlq_simulator.columns import OPTIONAL, REQUIRED, TIRESIAS, BadValue, SoftSteps, Value
from dlq_simulator.errors import DataError, UsageError

Format = Literal["auto", "dlq", "tiresias"]
_FIX_ROW = "correct the row and run again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One row. Times count from the trace's zero, deadlines and due dates from the submit."""

    job_id: str
    submit_time_s: int | float
    num_gpus: int
    duration_s: int | float
    user: str | None = None
    vc: str | None = None
    model: str | None = None
    kind: str = "be"
    deadline_s: int | float | None = None
    soft_steps: SoftSteps = ()
    gpus_per_worker: int | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    ps: int | None = None
    iterations: int | None = None
    gpu_type: str | None = None
    any_gpu: bool | None = None
    mem_gb: int | float | None = None
    checkpoint: bool = True
    weight: int | float | None = None
    due_s: int | float | None = None
    skew: int | float | None = None
    rho: int | float | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload in submit order (ties in file order).

    `whole_seconds`: every submit and duration is an integer, so the replay's clock stays on
    whole seconds. `notes` are for people: what was ignored.
    """

    path: str
    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = ()
    whole_seconds: bool = True

    @classmethod
    def of(cls, path: str, jobs: Iterable[TraceJob], notes: Sequence[str] = ()) -> Trace:
        ordered = tuple(sorted(jobs, key=lambda job: job.submit_time_s))
        whole = all(
            isinstance(job.submit_time_s, int) and isinstance(job.duration_s, int)
            for job in ordered
        )
        return cls(path=path, jobs=ordered, notes=tuple(notes), whole_seconds=whole)


def read_trace(path: str, format: Format = "auto") -> Trace:
    """Read and check the whole file; the first bad cell is a DataError with line and column.

    `auto` takes the Tiresias column names when `num_gpu` is there and `num_gpus` is not.
    """
    return parse_trace(path, _read_text(path), format)


def parse_trace(path: str, text: str, format: Format = "auto") -> Trace:
    """As `read_trace`, from the file's text; `path` only names it in messages."""
    rows = _rows(path, text)
    first = next(rows, None)
    if first is None:
        raise DataError(path, "it is empty", "give a CSV file with a header line")
    header = _header(path, first[1], format)
    jobs: list[TraceJob] = []
    seen: dict[str, int] = {}
    for line, cells in rows:
        job = _job(path, line, header, cells)
        if job.job_id in seen:
            why = f"job {job.job_id!r} is already on line {seen[job.job_id]}"
            raise DataError(path, why, _FIX_ROW, line=line, column="job_id")
        seen[job.job_id] = line
        jobs.append(job)
    if not jobs:
        raise DataError(path, "it has a header and no jobs", "add one row for each job")
    unknown = [name for name in header if name not in REQUIRED and name not in OPTIONAL]
    notes = [f"ignored columns that dlq does not know: {', '.join(unknown)}"] if unknown else []
    return Trace.of(path, jobs, notes)


def _read_text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot read the trace {path!r}", reason.lower(), "give the path of a CSV file"
        ) from error
    if path.endswith(".gz"):
        data = _gunzip(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(path, "it is not UTF-8 text", "save it as UTF-8", line=line) from error


def _gunzip(path: str, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"it is not a whole gzip file ({error})", "copy it anew") from error


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Non-empty rows with the number of the line they end on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(path, f"it is not CSV: {error}", _FIX_ROW, line=reader.line_num) from error


def _header(path: str, cells: Sequence[str], format: Format) -> list[str]:
    """The header in our words, complete and without doubles."""
    names = [cell.strip() for cell in cells]
    if format == "tiresias" or (
        format == "auto" and "num_gpu" in names and "num_gpus" not in names
    ):
        names = [TIRESIAS.get(name, name) for name in names]
    for name in REQUIRED:
        if name not in names:
            need = ", ".join(REQUIRED)
            why = f"the header has no {name}"
            raise DataError(path, why, f"every trace needs the columns {need}", line=1)
    for name in names:
        if names.count(name) > 1:
            raise DataError(path, "two columns have this name", "remove one", line=1, column=name)
    return names


def _job(path: str, line: int, header: Sequence[str], cells: Sequence[str]) -> TraceJob:
    if len(cells) != len(header):
        column = header[len(cells)] if len(cells) < len(header) else None
        why = f"the row has {len(cells)} cells and the header {len(header)}"
        raise DataError(path, why, _FIX_ROW, line=line, column=column)
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        value = _value(path, line, name, cell.strip())
        if value is not None:
            values[name] = value
    _check_together(path, line, values)
    return TraceJob(**values)


def _value(path: str, line: int, name: str, text: str) -> Value | None:
    """The cell's value; None for an unknown column and for an empty optional cell."""
    parser = REQUIRED.get(name) or OPTIONAL.get(name)
    if parser is None:
        return None
    if not text:
        if name in REQUIRED:
            raise DataError(path, "it is empty", _FIX_ROW, line=line, column=name)
        return None
    try:
        return parser(text)
    except BadValue as error:
        shown = text if len(text) <= 40 else text[:40] + "..."
        why = f"{error}, found {shown!r}"
        raise DataError(path, why, _FIX_ROW, line=line, column=name) from error


def _check_together(path: str, line: int, values: Mapping[str, Any]) -> None:
    """Rules between the cells of one row."""
    kind = values.get("kind", "be")
    needs = {"strict": "deadline_s", "soft": "soft_steps"}.get(kind)
    if needs is not None and needs not in values:
        raise DataError(path, f"a {kind} job needs it", _FIX_ROW, line=line, column=needs)
    if values.get("min_workers", 1) > values.get("max_workers", _LARGEST):
        why = f"min_workers is {values['min_workers']} and max_workers {values['max_workers']}"
        raise DataError(path, why, _FIX_ROW, line=line, column="max_workers")


_LARGEST = 2**53
