"""How results look, and the files they go to: the JSON document, the table for people, one CSV row
per job. Failed writes are refused in words.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import Metrics, ReplayOutcome, lateness_cost
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec

JOB_COLUMNS = ("job_id", "submit", "start", "finish", "preemptions", "gpus")
RENTED_COLUMNS = ("tardiness_cost", "rented_gpu_s")  # where machines are rented by need


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The cost of the replay on this machine; the only part of a result that is not repeatable."""

    plan_ms_p50: float | None
    plan_ms_p99: float | None
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One policy's replay of one trace."""

    policy: str
    metrics: Metrics
    outcomes: Sequence[ReplayOutcome]
    timing: Timing
    notes: Sequence[str] = ()


def to_json(
    trace: Trace,
    cluster: ClusterSpec,
    results: Sequence[Result],
    *,
    seed: int,
    settings: Sequence[str],
) -> str:
    """The document of `--json`: same inputs and seed give the same bytes, `timing` apart."""
    document: dict[str, Any] = {
        "schema": "dlq.v1",
        "trace": trace.path,
        "cluster": cluster.name,
        "nodes": cluster.nodes,
        "gpus": cluster.gpus,
        "seed": seed,
        "settings": list(settings),
        "policies": [
            {"policy": result.policy, **asdict(result.metrics), "timing": asdict(result.timing)}
            for result in results
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def to_table(results: Sequence[Result]) -> str:
    """One line a policy, columns aligned, seconds to one decimal; deadlines only if there are
    any.
    """
    columns = dict(_COLUMNS)
    if any(result.metrics.wdmr is not None for result in results):
        columns |= _DEADLINES
    if any(result.metrics.machine_hours is not None for result in results):
        columns |= _MONEY
    cells = [[text(result.metrics) for text in columns.values()] for result in results]
    names = ["POLICY", *(result.policy for result in results)]
    rows = [[name, *row] for name, row in zip(names, [[*columns], *cells], strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _hours(figures: Metrics) -> str:
    hours = figures.machine_hours or {}
    return " ".join(f"{pool}:{found:.1f}" for pool, found in hours.items()) or "-"


_Columns = Mapping[str, Callable[[Metrics], str]]
_COLUMNS: _Columns = {
    "JOBS": lambda figures: str(figures.jobs),
    "AVG JCT": lambda figures: _seconds(figures.avg_jct_s),
    "MEDIAN": lambda figures: _seconds(figures.median_jct_s),
    "P95": lambda figures: _seconds(figures.p95_jct_s),
    "AVG QUEUE": lambda figures: _seconds(figures.avg_queue_s),
    "MAKESPAN": lambda figures: _seconds(figures.makespan_s),
    "PREEMPT": lambda figures: str(figures.preemptions),
    "USE": lambda it: "-" if it.gpu_utilization is None else f"{it.gpu_utilization:.1%}",
}
_DEADLINES: _Columns = {
    "WDMR": lambda figures: "-" if figures.wdmr is None else f"{figures.wdmr:.2%}",
    "BE JCT": lambda figures: _seconds(figures.be_avg_jct_s),
    "GUARANTEED": lambda figures: _count(figures.guaranteed),
    "MISSED": lambda figures: _count(figures.promises_missed),
}
_MONEY: _Columns = {
    "COST": lambda figures: _cost(figures.cost),
    "TARDINESS COST": lambda figures: _cost(figures.tardiness_cost),
    "MACHINE HOURS": _hours,
}


def jobs_path(path: Path, policy: str, policies: int) -> Path:
    """The file for one policy's jobs: `path` itself, or `name.POLICY.csv` when several compare."""
    return path if policies == 1 else path.with_name(f"{path.stem}.{policy}{path.suffix}")


def write_jobs(path: Path, outcomes: Sequence[ReplayOutcome]) -> None:
    """One row per finished job, in submit order; times on the trace's clock."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            _write_rows(file, outcomes)
    except OSError as error:
        raise _refused(path, _reason(error)) from error


def _write_rows(file: TextIO, outcomes: Sequence[ReplayOutcome]) -> None:
    rows = csv.writer(file, lineterminator="\n")
    rents = any(outcome.rented_gpu_s is not None for outcome in outcomes)
    rows.writerow((*JOB_COLUMNS, *(RENTED_COLUMNS if rents else ())))
    for outcome in outcomes:
        job = outcome.job
        held = (outcome.rented_gpu_s or {}).items()
        words = ";".join(f"{pool}:{_plain(gpu_s)}" for pool, gpu_s in sorted(held))
        more = (_plain(lateness_cost(outcome)), words) if rents else ()
        rows.writerow(
            (
                job.job_id,
                _plain(job.submit_time_s),
                _plain(outcome.start_s),
                _plain(outcome.finish_s),
                outcome.preemptions,
                job.num_gpus,
                *more,
            )
        )


def _plain(value: float) -> int | float:
    """300 rather than 300.0."""
    return int(value) if value == int(value) else value


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SimulateError(
            f"cannot create {str(path)!r}", _reason(error), "give another directory"
        ) from error


def check_writable(path: Path) -> None:
    """SimulateError if the directory, or the file that is there or will be, may not be written."""
    asked = path if path.exists() else path.parent
    if not os.access(asked, os.W_OK | os.X_OK if asked.is_dir() else os.W_OK):
        raise _refused(path, "permission denied")


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _refused(path, _reason(error)) from error


def _refused(path: Path, why: str) -> SimulateError:
    return SimulateError(f"cannot write {str(path)!r}", why, "give a path that you may write")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
