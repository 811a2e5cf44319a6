"""The knowledge of a job's run time, and the missing part, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.estimate import Source, Unmeasured
from dlq_master.model.jobs.job import Job

_SOURCES: Mapping[Source, str] = MappingProxyType(
    {
        Source.DECLARED: "its user says so",
        Source.HISTORY: "earlier jobs of its family ran alike",
        Source.PROFILED: "by its own steps",
        Source.TRAFFIC: "by the iterations of its traffic, taken for steps",
    }
)


def is_awaited(job: Job, profile_s: float | None) -> bool:
    """Whether it will be found out how long the job runs: nobody knows it yet, and nothing has
    shown that nobody can. Where the policy measures no job, the missing part is the number of
    steps.
    """
    if job.ended or job.timed or job.basis.unmeasured is not None:
        return False
    return profile_s is not None or bool(job.trials) or job.step_count is not None


def known(job: Job, attempt: Attempt | None, profile_s: float | None) -> str:
    """One sentence. `profile_s`: T_profile of the policy; None: it measures nobody."""
    source = job.basis.source
    if source is Source.HISTORY and job.basis.rests_on:
        return _by_history(job, attempt, profile_s)
    if source is Source.PROFILED and job.measured_s:
        return "by trials on one node and on two"
    if source is not None:
        return _SOURCES[source]
    if job.duration_estimate_s is not None:
        return "from where is not known"
    if job.trials and attempt is not None:
        return (
            f"it is being measured, on {attempt.lease.allocation.width} of {job.request.gpus} GPUs"
        )
    if job.trials:
        return "it waits for a trial that will tell it"
    if job.basis.unmeasured is not None:
        return _missing(job, profile_s)
    if is_awaited(job, profile_s):
        return "it is being measured" if attempt is not None else "it is measured once it runs"
    return (
        "nobody has said it, and this policy measures no jobs. Say it with --work, or say the "
        "number of its steps with --steps and report them (dlq_train)"
    )


def _by_history(job: Job, attempt: Attempt | None, profile_s: float | None) -> str:
    if not job.basis.guess:
        return f"{_SOURCES[Source.HISTORY]}: {job.basis.rests_on}"
    more = "no deadline is promised on it"
    if job.basis.unmeasured is not None:
        more += f", and {_missing(job, profile_s)}"
    elif is_awaited(job, profile_s):
        more += ", and it is measured" + ("" if attempt is not None else " once it runs")
    return f"a guess by {job.basis.rests_on}: {more}"


def _missing(job: Job, profile_s: float | None) -> str:
    within = f"{2.0 * profile_s:.0f} s" if profile_s else "the time for that"
    match job.basis.unmeasured:
        case Unmeasured.NO_BEATS:
            return (
                f"it told no steps within {within} (run.beat of dlq_train); --work says it instead"
            )
        case Unmeasured.NO_TOTAL:
            return "it tells its steps, but not how many there are (total= of run.beat, or --steps)"
        case Unmeasured.TOO_FEW_STEPS:
            return f"it told fewer than two steps within {within}"
        case Unmeasured.TRIAL_FAILED:
            return "its trial on fewer GPUs failed; its own steps may still tell it"
        case Unmeasured.INTERACTIVE:
            return "its client decides when it ends; -t bounds it"
        case Unmeasured.GROUP:
            return "members of a group are not tried alone; --work says it instead"
        case _:
            return "its trials were lost with their nodes; its own steps may still tell it"
