"""The steps of a job with compat "slurm": in its own file, and as the master is told them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStep:
    """A step as the job's own program wrote it. Instants are UTC seconds of this node."""

    number: int
    name: str
    node_count: int
    task_count: int
    running: bool
    exit_code: int
    start_s: float
    end_s: float
    """0 while it runs."""
    peak_memory_bytes: int
    cpu_s: float
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepList:
    """The whole file: the newest steps by number, and how many are not in it."""

    steps: tuple[WrittenStep, ...] = ()
    dropped_count: int = 0
    dropped_failed_count: int = 0
    script_peak_memory_bytes: int | None = None
    """Of the batch script, once it has ended: the most of one process."""
    script_cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStep:
    """A step that began `age_s` ago. `run_s` None: it runs."""

    number: int
    name: str
    node_count: int
    task_count: int
    running: bool
    exit_code: int
    age_s: float
    run_s: float | None
    peak_memory_bytes: int
    cpu_s: float
    node_ids: tuple[str, ...]


def told_step(step: WrittenStep, now_s: float) -> ToldStep:
    """The same step without instants. A step from the future counts as just begun."""
    return ToldStep(
        number=step.number,
        name=step.name,
        node_count=step.node_count,
        task_count=step.task_count,
        running=step.running,
        exit_code=step.exit_code,
        age_s=max(0.0, now_s - step.start_s),
        run_s=None if step.running else max(0.0, step.end_s - step.start_s),
        peak_memory_bytes=step.peak_memory_bytes,
        cpu_s=step.cpu_s,
        node_ids=step.node_ids,
    )
