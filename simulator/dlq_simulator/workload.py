"""A workload: jobs in submit order, as a trace file or a generator gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlq_simulator.columns import SoftSteps


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
