"""Texts of sacct that take more than a word: resources, limits, measures."""

from __future__ import annotations

from collections.abc import Callable

from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.accounts.row import AccountRow
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_compat.job_page import size

_NO_LIMIT = "Partition_Limit"  # of a job without one that never ran
_KIB = 1024


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
    if not row.nodes:
        return ""
    if row.step is None:
        return _joined(row.job.tres)
    parts = [f"cpu={row.cpus}", f"mem={size(row.job.memory_mib) if row.job.memory_mib else 0}"]
    if gpus := row.step.gpus:
        parts.append(f"gres/gpu={gpus}")
    return _joined(",".join([*parts, f"node={len(row.nodes)}"]))


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


def max_rss(row: AccountRow) -> str:
    """`3316K`; empty: nobody measured it."""
    known = row.step.max_rss_bytes if row.step else None
    return "" if known is None else f"{known // _KIB}K"


def cpu_time(row: AccountRow) -> str:
    """`00:01.250`, `01:02:03`."""
    seconds = row.step.cpu_s if row.step else None
    if not seconds:
        return "00:00:00"
    whole, minutes = int(seconds), int(seconds) // 60
    if minutes < 60:
        return f"{minutes:02d}:{whole % 60:02d}.{int(seconds * 1000) % 1000:03d}"
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{whole % 60:02d}"
