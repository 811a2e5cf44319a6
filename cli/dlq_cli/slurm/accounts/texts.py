"""Texts of sacct that take more than a word: resources, limits, measures."""

from __future__ import annotations

from collections.abc import Callable

from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.accounts.row import AccountRow
from dlq_cli.slurm.jobs import measures
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_compat.job_page import size

_NO_LIMIT = "Partition_Limit"  # of a job without one that never ran


def constraint(job: SeenJob) -> str:
    return "&".join(f"{key}={text}" for key, text in job.job.resources.constraint.items())


def memory(job: SeenJob) -> str:
    """Of all its nodes."""
    mib = job.memory_mib * job.node_count
    return size(mib) if mib else "0"


def tres_asked(job: SeenJob) -> str:
    return _joined(job.tres)


def tres_given(row: AccountRow) -> str:
    """The resources that it has or had; of the batch script those of its node."""
    if not row.node_count:
        return ""
    if row.step is None:
        return _joined(row.job.tres)
    parts = [f"cpu={row.cpus}", f"mem={size(row.job.memory_mib) if row.job.memory_mib else 0}"]
    if gpus := row.step.gpus:
        parts.append(f"gres/gpu={gpus}")
    return _joined(",".join([*parts, f"node={row.node_count}"]))


def _joined(tres: str) -> str:
    """By name, as the accounts have them."""
    return ",".join(sorted(tres.split(",")))


def energy(row: AccountRow) -> str:
    return "" if row.start_s else "0"


def start(row: AccountRow) -> str:
    """A job that ended before it began has none."""
    return words.instant_s(row.start_s, "None" if row.end_s else words.UNKNOWN)


def limit(job: SeenJob, text: Callable[[float], str]) -> str:
    if job.limit_s is not None:
        return text(job.limit_s)
    return "UNLIMITED" if job.began_s else _NO_LIMIT


def of_ended(text: Callable[[SeenStep], str]) -> Callable[[AccountRow], str]:
    """A measure of a step. Of one that runs it is sstat's: accounts have it afterwards."""
    return lambda row: text(row.step) if row.step and row.step.ended else ""


def derived_exit(row: AccountRow) -> str:
    """Known once the job has ended, as in Slurm."""
    return f"{measures.derived_exit(row.own) if row.job.ended else 0}:0"


def cpu_time(row: AccountRow) -> str:
    """`00:01.250`, `01:02:03`; of a job that of all its steps."""
    return measures.cpu_clock(measures.cpu_of(row.own))
