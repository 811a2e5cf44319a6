"""The columns of `dlq history`: those of `dlq status`, and the outcome of a job. sacct's names are
known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.columns import COLUMNS, Column, Text, run_s
from dlq_cli.output.render import Cell, OutputLook, absolute, clean_line, table
from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import HOUR
from dlq_common.text.wire import from_timestamp


def exit_code(job: job_pb2.Job) -> str:
    """`code:signal`, as sacct prints it; of a job that never ran 0:0."""
    return f"{job.exit_code}:{job.exit_signal}"


def gpu_hours(seconds: float) -> float:
    """GPU-seconds in hours, to the second."""
    return round(seconds / HOUR, 4)


def _hours(field: str) -> Text:
    return lambda job, _: f"{getattr(job, field) / HOUR:.2f}"


def _instant(field: str) -> Text:
    """Absolute everywhere: in the reader's zone on a terminal, in UTC elsewhere."""

    def text(job: job_pb2.Job, look: OutputLook) -> str:
        if not job.HasField(field):  # type: ignore[arg-type]  # the names are checked by a test
            return ""
        then_s = from_timestamp(getattr(job, field))
        return absolute(then_s, look)

    return text


_AS_IN_STATUS = (
    "id", "name", "user", "queue", "gpus", "state", "code", "nodes", "cpus", "memory",
    "time_limit", "level", "attempts", "preemptions", "reason",
)  # fmt: skip
PAST: Mapping[str, Column] = {
    **{name: COLUMNS[name] for name in _AS_IN_STATUS},
    "exit": Column(Cell("EXIT", drop=5), lambda job, _: exit_code(job)),
    "submit": Column(Cell("SUBMIT", drop=9), _instant("submit_time")),
    "start": Column(Cell("START", drop=7), _instant("start_time")),
    "end": Column(Cell("END", drop=3), _instant("end_time")),
    "elapsed": Column(Cell("ELAPSED", right=True), COLUMNS["time"].text, run_s),
    "gpu_hours": Column(Cell("GPU_HOURS", right=True, drop=2), _hours("gpu_seconds")),
    "lost_gpu_hours": Column(
        Cell("LOST_GPU_HOURS", right=True, drop=6), _hours("lost_gpu_seconds")
    ),
}
DEFAULT = (
    "id", "name", "user", "queue", "gpus", "state", "exit", "start", "end", "elapsed",
    "gpu_hours", "preemptions", "lost_gpu_hours",
)  # fmt: skip

# sacct's names for the same.
_SACCT: Mapping[str, str] = {
    "jobid": "id", "jobidraw": "id", "jobname": "name", "partition": "queue", "exitcode": "exit",
    "timelimit": "time_limit", "nnodes": "nodes", "alloccpus": "cpus", "reqcpus": "cpus",
    "reqmem": "memory", "cputime": "elapsed", "restarts": "preemptions",
}  # fmt: skip
_FIELD = re.compile(r"([A-Za-z_]+)(?:%(-?)(\d{1,4}))?", re.ASCII)


class ChosenColumns(NamedTuple):
    """One column of a `--format`, with sacct's width, if one was given."""

    column: Column
    width: int = 0  # 0: as wide as it is
    left: bool = False

    def text(self, job: job_pb2.Job, look: OutputLook) -> str:
        """The cell, cut and padded to its width."""
        text = clean_line(self.column.text(job, look))
        if not self.width:
            return text
        cut = text[: self.width]
        return cut.ljust(self.width) if self.left else cut.rjust(self.width)


def parse_format(text: str) -> list[ChosenColumns]:
    """The columns of `id,state,gpu_hours`, or of sacct's `JobID,JobName%20`; InvalidRequest for
    others.
    """
    chosen = [_chosen(word.strip()) for word in text.split(",") if word.strip()]
    return chosen or [ChosenColumns(PAST[name]) for name in DEFAULT]


def past_table(
    columns: Sequence[ChosenColumns],
    jobs: Sequence[job_pb2.Job],
    look: OutputLook,
    *,
    headings: bool,
) -> str:
    """Aligned columns."""
    return table(
        [each.column.cell for each in columns],
        ([each.text(job, look) for each in columns] for job in jobs),
        look,
        headings=headings,
    )


def past_facts(job: job_pb2.Job) -> Facts:
    """One ended job for programs: the facts of `dlq status --json`, and its outcome."""
    return {
        **job_facts(job),
        "gpu_seconds": round(job.gpu_seconds, 3),
        "gpu_hours": gpu_hours(job.gpu_seconds),
        "lost_gpu_hours": gpu_hours(job.lost_gpu_seconds),
    }


def _chosen(word: str) -> ChosenColumns:
    found = _FIELD.fullmatch(word)
    name = found[1].lower() if found else word.lower()
    column = PAST.get(_SACCT.get(name, name))
    if found is None or column is None:
        raise InvalidRequest(
            f"--format: there is no column {word[:64]!r}{did_you_mean(name, PAST)}",
            field="--format",
            hint="columns: " + ", ".join(PAST),
        )
    return ChosenColumns(column, int(found[3] or 0), left=bool(found[2]))
