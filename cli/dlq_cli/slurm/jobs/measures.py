"""Measures of steps as sacct and sstat print them.

A step is measured by its tasks: the most memory of one task, and the CPU time of all. So an
average of memory, or the task of a measure, is known where there is one task alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_compat.job_page import clock

_SMALLEST = 1024
_HOUR_MS = 3_600_000


def kib(size_bytes: int | None) -> str:
    """`3016K`, `4M`: the largest unit that is exact, as in Slurm. Empty: nobody measured it."""
    if size_bytes is None:
        return ""
    size, units = size_bytes // _SMALLEST, iter("KMGTP")
    unit = next(units)
    while size and size % _SMALLEST == 0 and unit != "P":
        size, unit = size // _SMALLEST, next(units)
    return f"{size}{unit}" if size else "0"


def cpu_clock(seconds: float) -> str:
    """`00:02.500`, `01:02:03`; a whole number of seconds as all durations, as in Slurm."""
    millis = int(seconds * 1000 + 0.5)
    if millis >= _HOUR_MS or millis % 1000 == 0:
        return clock(millis // 1000)
    minutes, rest = divmod(millis, 60_000)
    return f"{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def cpu_of(steps: Iterable[SeenStep]) -> float:
    """CPU time of all steps, as far as they are measured."""
    return sum(step.cpu_s or 0.0 for step in steps)


def average_cpu(step: SeenStep) -> str:
    return "" if step.cpu_s is None else clock(step.cpu_s / max(1, step.tasks))


def only_task(step: SeenStep, text: str) -> str:
    """A text that holds where there is one task alone."""
    return text if step.tasks == 1 else ""


def only_node(step: SeenStep) -> str:
    return next(iter(step.nodes), "") if step.node_count == 1 else ""


def derived_exit(steps: Iterable[SeenStep]) -> int:
    """The highest exit code of what srun has started."""
    return max((step.exit_code for step in steps if not step.is_batch), default=0)
