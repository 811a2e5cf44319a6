"""A workload: jobs in submit order, as a trace file or a generator gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlq_simulator.columns import SoftSteps
from dlq_simulator.errors import LINE_AND_COLUMN, DataError


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
    halves_batch: bool | None = None
    mixed: bool | None = None
    tuned: bool | None = None
    batch_size: int | None = None  # with which `duration_s` was measured, if it is tuned
    checkpoint: bool = True
    weight: int | float | None = None
    due_s: int | float | None = None
    skew: int | float | None = None
    rho: int | float | None = None
    status: str | None = None
    # (GPU type, GPUs, seconds) of each configuration with a run time in the file.
    times_s: tuple[tuple[str, int, float], ...] = ()
    # Where the file has it, for messages: the same job on another line is the same job.
    line: int | None = field(default=None, compare=False)

    @property
    def gpu_types(self) -> tuple[str, ...] | None:
        """The GPU types of which any one will do, `V100|A100`, the one liked best first; None:
        all.
        """
        return None if self.gpu_type is None else tuple(self.gpu_type.split("|"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload in submit order (ties in file order).

    `whole_seconds`: every submit and duration is an integer, so the replay's clock stays on
    whole seconds. `notes` are for people: the ignored parts. `columns`: the file's words for ours,
    where they differ; `words`: its names for lines and columns.
    """

    path: str
    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = ()
    whole_seconds: bool = True
    columns: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, str] = LINE_AND_COLUMN

    @classmethod
    def of(
        cls,
        path: str,
        jobs: Iterable[TraceJob],
        notes: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
        words: tuple[str, str] = LINE_AND_COLUMN,
    ) -> Trace:
        ordered = tuple(sorted(jobs, key=lambda job: job.submit_time_s))
        whole = all(
            isinstance(job.submit_time_s, int) and isinstance(job.duration_s, int)
            for job in ordered
        )
        return cls(
            path=path,
            jobs=ordered,
            notes=tuple(notes),
            whole_seconds=whole,
            columns=columns or {},
            words=words,
        )

    def error(self, job: TraceJob, column: str, why: str, remedy: str) -> DataError:
        """The fault of one cell of a job, with its place in the file."""
        theirs = self.columns.get(column, column)
        return DataError(self.path, why, remedy, line=job.line, column=theirs, words=self.words)
