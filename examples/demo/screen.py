"""The output of the demo: a live table on a terminal, a line for each change anywhere else."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dlq.v1 import job_pb2

WIDE = 100  # columns; a narrower closing table does without the nodes
# Where there is no terminal:
PROGRESS_EVERY_S = 10.0
PLAIN_WIDTH = 120
STYLES = {
    "QUEUED": "yellow",
    "HELD": "yellow",
    "PAUSING": "magenta",
    "RUNNING": "green",
    "COMPLETED": "cyan",
    "FAILED": "red",
}


class Screen:
    """Narrates; on a terminal the jobs are a table below the narration."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        width = None if sys.stdout.isatty() else PLAIN_WIDTH
        self._console = Console(highlight=False, soft_wrap=True, width=width)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if sys.stdout.isatty()
            else None
        )
        self._shown: dict[str, str] = {}
        self._told_s = 0.0

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
        self.close()

    @property
    def elapsed_s(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started_s

    def act(self, title: str) -> None:
        """A new part of the story begins."""
        self._line(Text(title, style="bold"))

    def say(self, text: str) -> None:
        """One line of the story."""
        self._line(Text(f"  {text}"))

    def quote(self, output: str) -> None:
        """Print a command's output."""
        for line in output.splitlines():
            self._line(Text(f"    | {line}", style="dim"))

    def show(self, jobs: Sequence[job_pb2.Job]) -> None:
        """The present state of the jobs."""
        if self._live:
            self._live.update(Padding(_live_table(jobs), (1, 0, 0, 0)), refresh=True)
        else:
            self._tell(jobs)

    def close(self) -> None:
        """No live table any more."""
        if self._live:
            self._live.stop()
            self._live = None

    def closing_table(
        self,
        jobs: Sequence[job_pb2.Job],
        trail: Callable[[str], Iterable[str]],
        losses: dict[str, float],
    ) -> None:
        """How all of them fared."""
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for heading in ("JOB", "NAME"):
            table.add_column(heading, no_wrap=True)
        for heading in ("GPUS", "WAITED", "RAN", "ATTEMPTS", "PREEMPTED", "LOST", "LOSS"):
            table.add_column(heading, no_wrap=True, justify="right")
        if self._console.width >= WIDE:
            table.add_column("NODES", no_wrap=True)
        for job in jobs:
            whole_s = (job.end_time.ToNanoseconds() - job.submit_time.ToNanoseconds()) / 1e9
            run_s = job.run_duration.ToNanoseconds() / 1e9
            cells = [
                job.job_id,
                job.name,
                str(job.resources.gpu_count),
                f"{max(0.0, whole_s - run_s):.1f} s",
                f"{run_s:.1f} s",
                str(job.attempt_count),
                str(job.preemption_count),
                f"{job.lost_gpu_seconds:.1f}",
                f"{losses[job.job_id]:.4f}",
                ", then ".join(trail(job.job_id)),
            ]
            table.add_row(*cells[: len(table.columns)])
        self._console.print(Padding(table, (1, 0, 1, 0)))

    def proved(self, sentences: Iterable[str]) -> None:
        """Print the results of the demo."""
        for sentence in sentences:
            self._console.print(Text.assemble(("proved ", "bold green"), sentence))

    def _line(self, text: Text) -> None:
        self._console.print(Text.assemble((f"{self.elapsed_s:6.1f} s  ", "dim"), text))

    def _tell(self, jobs: Sequence[job_pb2.Job]) -> None:
        """Changes at once, how far the jobs are now and then."""
        for job in jobs:
            line = f"{job.job_id} {job.name}: {_state(job)} {_where(job)}".rstrip()
            if self._shown.get(job.job_id) != line:
                self._shown[job.job_id] = line
                self.say(f"  job {line}")
        if self.elapsed_s - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = self.elapsed_s
            self.say("  " + ", ".join(f"{job.name} {_percent(job)}" for job in jobs))


def _live_table(jobs: Sequence[job_pb2.Job]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("JOB", "NAME", "GPUS", "STATE", "WHERE", "PROGRESS", "STEP", "LOSS"):
        table.add_column(heading, no_wrap=True, header_style="dim")
    for job in jobs:
        loss = f"{job.progress.loss:.4f}" if job.progress.HasField("loss") else ""
        table.add_row(
            job.job_id,
            job.name,
            str(job.resources.gpu_count),
            Text(_state(job), style=STYLES.get(_state(job), "")),
            ",".join(job.node_ids),
            _bar(job),
            f"{job.progress.step}/{job.progress.total_step_count}" if _beats(job) else "",
            loss,
        )
    return table


def _state(job: job_pb2.Job) -> str:
    """The state of the living attempt, else of the job, as `dlq status` words it."""
    if job.HasField("attempt_state"):
        return job_pb2.AttemptState.Name(job.attempt_state).removeprefix("ATTEMPT_STATE_")
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_")


def _where(job: job_pb2.Job) -> str:
    return "on " + ",".join(job.node_ids) if job.node_ids else ""


def _beats(job: job_pb2.Job) -> bool:
    return job.progress.HasField("step") and job.progress.HasField("total_step_count")


def _part_done(job: job_pb2.Job) -> float:
    if job.state == job_pb2.JOB_STATE_COMPLETED:
        return 1.0
    return job.progress.step / job.progress.total_step_count if _beats(job) else 0.0


def _percent(job: job_pb2.Job) -> str:
    return f"{100 * _part_done(job):.0f} %"


def _bar(job: job_pb2.Job) -> RenderableType:
    return ProgressBar(total=1.0, completed=_part_done(job), width=14)
