"""Microsoft's Philly log, condensed to a CSV with calendar times or raw as `cluster_job_log`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from dlq_simulator.columns import BadValue, count, seconds, word
from dlq_simulator.readers.dialect import Dialect, DialectColumn, SkipRow, Values

T = TypeVar("T")


def calendar(text: str) -> int:
    """A date and time as whole seconds of some calendar without summer time. An offset, such as
    +01:00 or Z, is honoured; a time without one counts as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue("expected a time such as 2017-10-09 10:30:41") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


PHILLY = Dialect(
    name="philly",
    marks=frozenset({"timestamp", "duration", "num_gpus", "cluster"}),
    columns={
        "timestamp": DialectColumn("submit_time_s", calendar),
        "duration": DialectColumn("duration_s", seconds),
        "num_gpus": DialectColumn("num_gpus", count),
        "cluster": DialectColumn("vc", word),
        "job_id": DialectColumn("job_id", word),
        "user": DialectColumn("user", word),
        "status": DialectColumn("status", word),
    },
    required=("timestamp", "duration", "num_gpus"),
    silent=frozenset({"gpu_time"}),
    rebase=True,
)


# The raw log's words; an entry is a JSON object.
RAW = Dialect(
    name="philly",
    marks=frozenset(),
    columns={
        "jobid": DialectColumn("job_id", word),
        "submitted_time": DialectColumn("submit_time_s", calendar),
        "attempts": DialectColumn("num_gpus", count),
        "user": DialectColumn("user", word),
        "vc": DialectColumn("vc", word),
        "status": DialectColumn("status", word),
    },
    required=(),
    rebase=True,
    words=("entry", "field"),
)


def is_raw_log(text: str) -> bool:
    return text[:64].lstrip().startswith("[")


def raw_entries(text: str) -> Sequence[object]:
    """The entries of a raw log; ValueError when it is not JSON."""
    try:
        entries: list[object] = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return entries


def raw_job(entry: object) -> Values:
    """The job of an entry, times on a calendar; SkipRow when it never ran on GPUs, BadValue names
    the field that is not as published."""
    if not isinstance(entry, Mapping):
        raise BadValue("expected an object", "jobid")
    attempts = _objects(entry, "attempts")
    ran = [times for n, one in enumerate(attempts, 1) if (times := _ran(n, one)) is not None]
    gpus = ran[0][1] if ran else 0
    values: Values = {
        "job_id": _read(entry, "jobid", word),
        "submit_time_s": _read(entry, "submitted_time", calendar),
        "num_gpus": gpus,
        "duration_s": sum(duration_s for duration_s, _ in ran),
    }
    if not gpus:
        raise SkipRow("no attempt with GPUs has begun and ended")
    told = {
        name: _read(entry, name, word) for name in ("user", "vc", "status") if _has(entry, name)
    }
    return {**values, **told}


def _ran(number: int, attempt: Mapping[str, object]) -> tuple[int, int] | None:
    """Seconds and GPUs of an attempt; None if it has not both begun and ended."""
    if not (_has(attempt, "start_time") and _has(attempt, "end_time")):
        return None
    try:
        begin_s = _read(attempt, "start_time", calendar)
        end_s = _read(attempt, "end_time", calendar)
        if end_s < begin_s:
            raise BadValue("it ends before it starts")
        nodes = _objects(attempt, "detail") if _has(attempt, "detail") else ()
        gpus = sum(len(_list(node, "gpus")) for node in nodes if _has(node, "gpus"))
    except BadValue as error:
        field = f"{error.column}: " if error.column else ""
        raise BadValue(f"attempt {number}: {field}{error}", "attempts") from error
    return end_s - begin_s, gpus


def _has(entry: Mapping[str, object], field: str) -> bool:
    """The log writes an unknown value as null, as nothing, or as the word None."""
    return entry.get(field) not in (None, "", "None")


def _read(entry: Mapping[str, object], field: str, parse: Callable[[str], T]) -> T:
    value = entry.get(field)
    if not _has(entry, field):
        raise BadValue("it is missing", field)
    if not isinstance(value, str | int):
        raise BadValue(f"expected text, found {_shown(value)}", field)
    try:
        return parse(str(value))
    except BadValue as error:
        raise BadValue(f"{error}, found {_shown(value)}", field) from error


def _list(entry: Mapping[str, object], field: str) -> Sequence[object]:
    value = entry.get(field)
    if not isinstance(value, list):
        found = "it is missing" if value is None else f"expected a list, found {_shown(value)}"
        raise BadValue(found, field)
    return value


def _objects(entry: Mapping[str, object], field: str) -> Sequence[Mapping[str, object]]:
    objects: list[Mapping[str, object]] = []
    for value in _list(entry, field):
        if not isinstance(value, Mapping):
            raise BadValue(f"expected a list of objects, found {_shown(value)} in it", field)
        objects.append(value)
    return objects


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."
