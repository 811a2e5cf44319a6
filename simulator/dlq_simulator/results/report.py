"""How results look, and the files they go to: the JSON document, the table for people, one CSV row
per job. Failed writes are refused in words.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
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
    rows = [_HEAD, *(_row(result) for result in results)]
    if any(result.metrics.wdmr is not None for result in results):
        deadlines = [_DEADLINES, *(_deadlines(result) for result in results)]
        rows = [(*row, *more) for row, more in zip(rows, deadlines, strict=True)]
    if any(result.metrics.machine_hours is not None for result in results):
        money = [_MONEY, *(_money(result) for result in results)]
        rows = [(*row, *more) for row, more in zip(rows, money, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


_HEAD = ("POLICY", "JOBS", "AVG JCT", "MEDIAN", "P95", "AVG QUEUE", "MAKESPAN", "PREEMPT", "USE")


def _row(result: Result) -> tuple[str, ...]:
    figures = result.metrics
    share = figures.gpu_utilization
    return (
        result.policy,
        str(figures.jobs),
        _seconds(figures.avg_jct_s),
        _seconds(figures.median_jct_s),
        _seconds(figures.p95_jct_s),
        _seconds(figures.avg_queue_s),
        _seconds(figures.makespan_s),
        str(figures.preemptions),
        "-" if share is None else f"{share:.1%}",
    )


_DEADLINES = ("WDMR", "BE JCT", "GUARANTEED", "MISSED")


def _deadlines(result: Result) -> tuple[str, ...]:
    figures = result.metrics
    counts = (figures.guaranteed, figures.promises_missed)
    return (
        "-" if figures.wdmr is None else f"{figures.wdmr:.2%}",
        _seconds(figures.be_avg_jct_s),
        *("-" if count is None else str(count) for count in counts),
    )


_MONEY = ("COST", "TARDINESS COST", "MACHINE HOURS")


def _money(result: Result) -> tuple[str, ...]:
    figures = result.metrics
    hours = figures.machine_hours or {}
    return (
        *(
            "-" if cost is None else f"{cost:.2f}"
            for cost in (figures.cost, figures.tardiness_cost)
        ),
        " ".join(f"{pool}:{found:.1f}" for pool, found in hours.items()) or "-",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


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
