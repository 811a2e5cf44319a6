"""Are the verbs of profiling legal?"""

from __future__ import annotations

from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import Profiling
from dlq_master.model.plan import Estimate, Profile, Scale


def scale_fault(scale: Scale, profiling: Profiling) -> str:
    """What is wrong with how many GPUs are for trials; empty: nothing."""
    if scale.hour <= profiling.hour:
        return "the GPUs for trials of this hour have been decided already"
    return "" if scale.gpus >= 0 else "trials on fewer than no GPUs"


def job_fault(change: Profile | Estimate, job: Job, profiling: Profiling) -> str:
    """What is wrong with trying a job, or with saying how long it runs; empty: nothing."""
    if job.job_id not in profiling.unknown:
        return f"job {job.job_id} needs no estimate"
    if isinstance(change, Estimate):
        return "" if 0.0 < change.estimate_s < float("inf") else "no run time"
    asked, trials = job.request.gpus, change.trials
    fewer = bool(trials) and all(0 < gpus < asked for gpus in trials)
    return "" if trials == (asked,) or fewer else f"trials on {trials} GPUs, of {asked} asked"
