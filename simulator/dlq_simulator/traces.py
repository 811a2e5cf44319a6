"""Reads a trace file (CSV with a header, optionally .gz, in any dialect) into a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from dlq_simulator.columns import BadValue
from dlq_simulator.errors import LINE_AND_COLUMN, DataError
from dlq_simulator.readers import dialect_of
from dlq_simulator.readers.dialect import Dialect, DialectColumn, SkipRow, Values
from dlq_simulator.readers.philly import RAW, is_raw_log, raw_entries, raw_job
from dlq_simulator.readers.text import FIX_ROW, CsvRows, read_text
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.goodput_models import MODELS


def read_trace(path: str, form: str = "auto", *, skip_bad: bool = False) -> Trace:
    """Read and check the whole file; the first bad cell is a DataError with line and column.

    `form` is a name of `readers.FORMATS`; `auto` tells it from the header. `skip_bad`: a bad row
    is left out and counted in the notes instead.
    """
    return parse_trace(path, read_text(path), form, skip_bad=skip_bad)


def parse_trace(path: str, text: str, form: str = "auto", *, skip_bad: bool = False) -> Trace:
    """The trace of a file's text, as in `read_trace`; `path` names it in messages and finds its
    companions.
    """
    reading = _Reading(path, skip_bad)
    if form in ("auto", "philly") and is_raw_log(text):
        reading.raw_philly(text)
    else:
        reading.csv(text, form)
    return reading.trace()


_FIX_ENTRY = "correct the entry and run again"
# More workers than any cluster has: each size in between is one that a policy may choose.
_MOST_WORKERS = 2**16


def _wrong_size(values: Values) -> tuple[str, str] | None:
    """The column, and its fault, of a job that may not run on its requested GPUs."""
    least, most = values.get("min_workers"), values.get("max_workers")
    if least is None and most is None:
        return None
    each, gpus = values.get("gpus_per_worker", 1), values["num_gpus"]
    if least is not None and most is not None and least > most:
        return "max_workers", f"min_workers is {least} and max_workers {most}"
    if gpus % each:
        return "num_gpus", f"it is {gpus}, no whole number of workers of {each} GPUs"
    if least is not None and least * each > gpus:
        return "min_workers", f"{least} workers of {each} GPUs are more than num_gpus, {gpus}"
    if most is not None and most * each < gpus:
        return "max_workers", f"{most} workers of {each} GPUs are fewer than num_gpus, {gpus}"
    if most is not None and most > _MOST_WORKERS:
        return "max_workers", f"expected at most {_MOST_WORKERS}, found {most}"
    return None


def _not_tunable(values: Values) -> tuple[str, str] | None:
    """The same of a tuned job whose goodput nobody knows."""
    if not values.get("tuned"):
        return None
    model = MODELS.get(values.get("model", ""))
    if model is None:
        return "model", f"a tuned job is one of {', '.join(MODELS)}"
    batch = values.get("batch_size", model.batch)
    if not model.batch <= batch <= model.most_batch:
        return "batch_size", f"{model.name} takes {model.batch} to {model.most_batch}, not {batch}"
    return None


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."


class _Reading:
    """One file being read: the jobs so far, and the skipped rows with reasons."""

    def __init__(self, path: str, skip_bad: bool) -> None:
        self._path = path
        self._skip_bad = skip_bad
        self._rows: list[Values] = []
        self._seen: dict[str, int] = {}
        self._skipped: Counter[str] = Counter()
        self._bad: list[DataError] = []
        self._notes: list[str] = []
        self._dialect: Dialect | None = None

    @property
    def _words(self) -> tuple[str, str]:
        return LINE_AND_COLUMN if self._dialect is None else self._dialect.words

    def csv(self, text: str, form: str) -> None:
        rows = CsvRows(self._path, text)
        first = next(rows, None)
        if first is None:
            raise DataError(self._path, "it is empty", "give a CSV file with a header line")
        names = [cell.strip() for cell in first[1]]
        dialect = self._dialect = dialect_of(names, form)
        columns = self._columns(dialect, names)
        beside = dialect.companion(Path(self._path)) if dialect.companion else {}
        for line, cells in self._sound(rows):
            try:
                self._take(line, self._values(dialect, columns, names, cells, line, beside))
            except SkipRow as skip:
                self._skipped[str(skip)] += 1
            except DataError as error:
                self._leave_out(error)

    def raw_philly(self, text: str) -> None:
        dialect = self._dialect = RAW
        try:
            entries = raw_entries(text)
        except ValueError as error:
            why = f"it is not a Philly job log: {error}"
            raise DataError(self._path, why, "give cluster_job_log as published") from error
        for number, entry in enumerate(entries, start=1):
            try:
                self._take(number, raw_job(entry))
            except SkipRow as skip:
                self._skipped[str(skip)] += 1
            except BadValue as error:
                at, why = error.column and dialect.column(error.column), str(error)
                self._leave_out(
                    DataError(
                        self._path, why, _FIX_ENTRY, line=number, column=at, words=dialect.words
                    )
                )

    def trace(self) -> Trace:
        if not self._rows:
            if self._bad:
                raise self._bad[0]
            why = "it has a header and no jobs"
            raise DataError(self._path, why, "add one row for each job")
        dialect = self._dialect
        if dialect is not None and dialect.rebase:
            first_s = min(row["submit_time_s"] for row in self._rows)
            for row in self._rows:
                row["submit_time_s"] -= first_s
        self._tell(dialect)
        jobs = [TraceJob(**row) for row in self._rows]
        columns = dialect.theirs if dialect is not None else None
        return Trace.of(self._path, jobs, self._notes, columns, self._words)

    def _tell(self, dialect: Dialect | None) -> None:
        """Notes on the trace for a person."""
        if dialect is not None and dialect.note:
            self._notes.append(dialect.note)
        for reason, count in sorted(self._skipped.items()):
            self._notes.append(f"skipped {count} of {count + len(self._rows)} rows: {reason}")
        if self._bad:
            self._notes.append(
                f"skipped {len(self._bad)} bad rows, the first: {self._bad[0].what}, "
                f"{self._bad[0].why}"
            )
        late = sum(b["submit_time_s"] < a["submit_time_s"] for a, b in pairwise(self._rows))
        if late:
            self._notes.append(f"sorted by submit time: {late} rows came after a later one")

    def _sound(self, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
        while True:
            try:
                yield next(rows)
            except StopIteration:
                return
            except DataError as error:
                self._leave_out(error)

    def _leave_out(self, error: DataError) -> None:
        if not self._skip_bad:
            raise error
        self._bad.append(error)

    def _columns(self, dialect: Dialect, names: Sequence[str]) -> list[DialectColumn | None]:
        """The header, complete and without doubles; None for an ignored one."""
        for name in dialect.required:
            if name not in names:
                fix = f"every {dialect.name} trace needs the columns {', '.join(dialect.required)}"
                if dialect.name == "dlq":
                    fix = f"every trace needs the columns {', '.join(dialect.required)}"
                raise DataError(self._path, f"the header has no {name}", fix, line=1)
        for name, count in Counter(names).items():
            if count > 1:
                why = "two columns have this name"
                raise DataError(self._path, why, "remove one", line=1, column=name)
        unknown = [n for n in names if n not in dialect.columns and n not in dialect.silent]
        if unknown:
            shown = ", ".join(_short(name) for name in unknown)
            self._notes.append(f"ignored columns that dlq does not know: {shown}")
        return [dialect.columns.get(name) for name in names]

    def _values(
        self,
        dialect: Dialect,
        columns: Sequence[DialectColumn | None],
        names: Sequence[str],
        cells: Sequence[str],
        line: int,
        beside: Mapping[str, Values],
    ) -> Values:
        """One row in our words; SkipRow, or DataError that names the cell."""
        if len(cells) != len(names):
            missing = names[len(cells)] if len(cells) < len(names) else None
            why = f"the row has {len(cells)} cells and the header {len(names)}"
            raise DataError(self._path, why, FIX_ROW, line=line, column=missing)
        values: Values = {}
        for name, column, cell in zip(names, columns, cells, strict=True):
            text = cell.strip()
            if column is None:
                continue
            if text:
                values[column.name] = self._parsed(line, name, column, text)
            elif name in dialect.required and name not in dialect.may_be_empty:
                raise DataError(self._path, "it is empty", FIX_ROW, line=line, column=name)
        values.setdefault("job_id", str(len(self._rows)))
        values.update(beside.get(values["job_id"], {}))
        try:
            values = dialect.finish(values)
        except BadValue as error:
            at = error.column and dialect.column(error.column)
            raise DataError(self._path, str(error), FIX_ROW, line=line, column=at) from error
        self._check_together(line, dialect, values)
        return values

    def _parsed(self, line: int, name: str, column: DialectColumn, text: str) -> object:
        try:
            return column.parse(text)
        except BadValue as error:
            why = f"{error}, found {_short(text)!r}"
            raise DataError(self._path, why, FIX_ROW, line=line, column=name) from error

    def _check_together(self, line: int, dialect: Dialect, values: Values) -> None:
        """Rules between the cells of one row."""
        kind = values.get("kind", "be")
        needs = {"strict": "deadline_s", "soft": "soft_steps"}.get(kind)
        if needs is not None and needs not in values:
            column = dialect.column(needs)
            raise DataError(self._path, f"a {kind} job needs it", FIX_ROW, line=line, column=column)
        wrong = _wrong_size(values) or _not_tunable(values)
        if wrong is not None:
            column, why = wrong
            column = dialect.column(column)
            raise DataError(self._path, why, FIX_ROW, line=line, column=column)

    def _take(self, line: int, values: Values) -> None:
        job_id = values["job_id"]
        if job_id in self._seen:
            row, _ = words = self._words
            why = f"job {job_id!r} is already on {row} {self._seen[job_id]}"
            column = self._dialect.column("job_id") if self._dialect else "job_id"
            self._leave_out(
                DataError(self._path, why, FIX_ROW, line=line, column=column, words=words)
            )
            return
        self._seen[job_id] = line
        values["line"] = line
        self._rows.append(values)
