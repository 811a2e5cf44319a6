"""What the demo shows: a live table on a terminal, a line for each change anywhere else."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dlq.v1 import job_pb2


class Screen:
    """Narrates; on a terminal the jobs are a table below the narration."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = (
            Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() else None
        )
        self._shown: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line of the story, with the time since the start."""
        self._console.print(f"{time.monotonic() - self._started_s:6.1f} s  {text}")

    def show(self, jobs: Sequence[job_pb2.Job]) -> None:
        """The present state of the jobs."""
        if self._live:
            self._live.update(_table(jobs), refresh=True)
            return
        for job in jobs:
            line = f"job {job.job_id} {job.name}: {_state(job)} {_where(job)}".rstrip()
            if self._shown.get(job.job_id) != line:
                self._shown[job.job_id] = line
                self.say(f"  {line}{_progress(job)}")

    def close_with(self, jobs: Sequence[job_pb2.Job], losses: dict[str, float]) -> None:
        """The closing table."""
        if self._live:
            self._live.update(Table.grid(), refresh=True)
        table = Table("job", "name", "GPUs", "wait", "run", "preempted", "final loss")
        for job in jobs:
            whole_s = job.end_time.ToNanoseconds() - job.submit_time.ToNanoseconds()
            run_s = job.run_duration.ToNanoseconds()
            table.add_row(
                job.job_id,
                job.name,
                str(_gpus(job)),
                f"{(whole_s - run_s) / 1e9:.1f} s",
                f"{run_s / 1e9:.1f} s",
                str(job.preemption_count),
                f"{losses[job.job_id]:.4f}",
            )
        self._console.print(table)


def _table(jobs: Sequence[job_pb2.Job]) -> Table:
    table = Table("job", "name", "GPUs", "state", "nodes", "level", "progress", "loss")
    for job in jobs:
        loss = f"{job.progress.loss:.4f}" if job.progress.HasField("loss") else ""
        table.add_row(
            job.job_id,
            job.name,
            str(_gpus(job)),
            _state(job),
            _where(job),
            str(job.level),
            _progress(job).strip(),
            loss,
        )
    return table


def _state(job: job_pb2.Job) -> str:
    """The state of the living attempt, else of the job, as `dlq status` words it."""
    if job.HasField("attempt_state"):
        return job_pb2.AttemptState.Name(job.attempt_state).removeprefix("ATTEMPT_STATE_")
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_")


def _where(job: job_pb2.Job) -> str:
    virtual = " (virtual GPUs)" if job.node_ids and job.virtual_devices else ""
    return ("on " + ",".join(job.node_ids) + virtual) if job.node_ids else ""


def _progress(job: job_pb2.Job) -> str:
    if not job.progress.HasField("step"):
        return ""
    return f"  step {job.progress.step}/{job.progress.total_step_count}"


def _gpus(job: job_pb2.Job) -> int:
    return int(job.resources.gpu_count)
