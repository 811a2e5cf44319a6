"""The work that a stop of a job loses, as far as is known of how it saves."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.grace import work_at_risk_s
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.windows import says_it_saves

NEVER_SAVED = "never_saved"
DID_NOT_SAVE = "did_not_save"  # its spec says how it saves; it has lost work before and never saved
NOT_KEPT = "not_kept"  # it cannot go on from what it has saved
OFF_GPUS = "off_gpus"  # it is suspended: a stop kills it


class Loss(NamedTuple):
    """Seconds of work on so many GPUs, or cores, that a stop loses, and why."""

    work_s: float
    gpus: int
    ground: str


def has_never_saved(job: Job, attempt: Attempt) -> bool:
    """Whether no checkpoint of any of its attempts is known."""
    return job.checkpoint is None and attempt.checkpoint is None and not job.saves


def stop_loss(job: Job, attempt: Attempt, now_s: float, *, off_gpus: bool = False) -> Loss | None:
    """The loss if the attempt stops at `now_s`; None: nothing, as far as is known.

    A job that has saved before, or says in its spec how it saves, is given its grace to save again.
    An attempt that only tries its job on fewer GPUs does no work that could be lost.
    """
    ground = OFF_GPUS if off_gpus else _ground(job, attempt)
    work_s = work_at_risk_s(attempt, now_s)
    if not ground or work_s <= 0.0 or job.reduced:
        return None
    return Loss(work_s, attempt.place.width, ground)


def _ground(job: Job, attempt: Attempt) -> str:
    if not job.keeps_work:
        return NOT_KEPT
    if not has_never_saved(job, attempt):
        return ""
    if not says_it_saves(job):
        return NEVER_SAVED
    return DID_NOT_SAVE if job.lost_gpu_s > 0.0 else ""
