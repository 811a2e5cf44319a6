"""Deadlines on the wire: deadlines and cost of lateness of a spec, checked, and a job's
promises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlq.v1.job_pb2 import DeadlineStep, JobSpec, Promise
from dlq.v1.job_service_pb2 import UpdateJobRequest
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import refused
from dlq_common.text.instants import LATEST_S
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import LONGEST_DURATION_S
from dlq_common.text.wire import from_duration, from_timestamp, to_duration, to_timestamp
from dlq_master.control.deadlines.risks import Risk
from dlq_master.control.stimuli import SAME, AskedDeadline, AskedLateness, Same
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.deadlines import due_s, slack_s
from dlq_master.model.jobs.job import Alternative, Job
from dlq_master.model.jobs.reward import FULL, LATE
from dlq_master.model.nodes.windows import says_it_saves
from dlq_master.model.words.estimate_words import is_awaited, known
from dlq_master.model.words.promise_words import promise

MOST_DEADLINES = 20
MOST_PER_HOUR = 1e12
SIZES = (1, 2, 4, 8)  # of a job that names no number of GPUs
_HOUR_S = 3600.0
CONTINUE, CANCEL = "continue", "cancel"
ON_MISS = (CONTINUE, CANCEL)
GUARANTEED, UNGUARANTEED = "guaranteed", "unguaranteed"  # states of a promise


def check_deadlines(spec: JobSpec) -> None:
    """InvalidRequest: they make no sense. The loop checks which of them have passed."""
    _check_steps(spec.deadlines)
    if spec.on_miss and not spec.deadlines:
        raise _wrong("on_miss", "means something only with a deadline")


def new_deadlines(request: UpdateJobRequest) -> tuple[AskedDeadline, ...] | Same:
    """Deadlines that replace those of a job; empty: none."""
    if request.clear_deadlines and request.deadlines:
        raise InvalidRequest("deadlines are given and taken away", field="clear_deadlines")
    if request.clear_deadlines:
        return ()
    if not request.deadlines:
        return SAME
    _check_steps(request.deadlines, "")
    return tuple([_asked(step) for step in request.deadlines])


def new_on_miss(request: UpdateJobRequest) -> str | Same:
    """The treatment of the job once it is late."""
    if not request.HasField("on_miss"):
        return SAME
    _check_on_miss(request.on_miss or "?")
    return request.on_miss


def deadlines_of(spec: JobSpec) -> tuple[AskedDeadline, ...]:
    """The deadlines of the spec."""
    return tuple([_asked(step) for step in spec.deadlines])


def promise_message(
    job: Job,
    attempt: Attempt | None,
    now_s: float,
    *,
    offered: bool,
    profile_s: float | None = None,
    risk: Risk | None = None,
    told_s: float | None = None,
    delay: str = "",
    policy: str = "",
) -> Promise:
    """A job's deadlines, and their promises. `offered`: the policy makes promises.

    `profile_s`: T_profile of the policy with the name `policy`; None: it measures no jobs.
    `told_s`: the time of all its work by its own steps. `delay`: why no job is judged now.
    """
    state = _state(job, profile_s, offered=offered)
    slack = slack_s(job, attempt, now_s, told_s)
    measured = job.timed  # else it is measured before anybody judges it
    message = Promise(
        deadlines=[
            DeadlineStep(due_time=to_timestamp(due_s(job, number)), reward=step.reward)
            for number, step in enumerate(job.steps)
        ],
        state=state,
        ground=job.verdict,
        detail=promise(
            job, state, known(job, attempt, profile_s), risk.cause if risk else "", delay, policy
        ),
        on_miss=CANCEL if job.rules.cancel_late else CONTINUE,
        saving_unknown=job.promised is not None and not job.ended and not says_it_saves(job),
        judging_fails=bool(delay) and state == "undecided" and measured and not job.ended,
        guaranteed_index=job.promised,
        work_duration=to_duration(job.duration_estimate_s),
        slack_duration=to_duration(slack),
    )
    if risk is not None and job.promised is not None:
        message.risk = risk.cause
        message.risk_time.CopyFrom(to_timestamp(risk.since_s))
    if job.alternative is not None and state == UNGUARANTEED:
        _add_alternative(message, job.alternative)
    return message


# --- the cost of being late -----------------------------------------------------------------------


def check_lateness(spec: JobSpec) -> None:
    """InvalidRequest: the cost of lateness makes no sense."""
    if not spec.HasField("lateness"):
        return
    late = spec.lateness
    if late.WhichOneof("due") is None:
        raise refused("lateness.due_time", "must say when it is due")
    if late.HasField("due_duration"):
        after_s = from_duration(late.due_duration)
        if not 0 < after_s <= LONGEST_DURATION_S:
            raise refused("lateness.due_duration", "must be above 0, and not longer than years")
    elif not 0 < late.due_time.seconds <= LATEST_S:
        raise refused("lateness.due_time", "must be an instant between 1970 and the year 3000")
    if not (math.isfinite(late.weight_per_hour) and 0 < late.weight_per_hour <= MOST_PER_HOUR):
        raise refused(
            "lateness.weight_per_hour", f"must be above 0, and not above {MOST_PER_HOUR:g}"
        )


def with_sizes(spec: JobSpec) -> JobSpec:
    """The spec with `SIZES` of one node if it names no number of GPUs, so that the policy chooses
    one.

    Else the spec itself.
    """
    if not is_sized(spec):
        return spec
    for name in ("elastic", "roles"):
        if spec.HasField(name):
            raise refused("resources.gpu_count", f"must be said with {name}")
    if spec.deadlines or spec.resources.HasField("node_count"):
        raise refused("resources.gpu_count", "must be said with deadlines, and with a node_count")
    filled = JobSpec()
    filled.CopyFrom(spec)
    filled.resources.gpu_count = SIZES[0]
    filled.elastic.gpu_counts.extend(SIZES)
    return filled


def is_sized(spec: JobSpec) -> bool:
    """Whether the policy chooses the job's number of GPUs."""
    asked = spec.resources
    return spec.HasField("lateness") and not (asked.gpu_count or asked.core_count)


def lateness_of(spec: JobSpec) -> AskedLateness | None:
    """The cost of lateness of the spec."""
    if not spec.HasField("lateness"):
        return None
    late, weight = spec.lateness, spec.lateness.weight_per_hour / _HOUR_S
    if late.HasField("due_time"):
        return AskedLateness(weight, at_s=from_timestamp(late.due_time))
    return AskedLateness(weight, after_s=from_duration(late.due_duration))


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_steps(steps: Sequence[DeadlineStep], of: str = "spec.") -> None:
    if len(steps) > MOST_DEADLINES:
        raise _wrong("deadlines", f"are more than {MOST_DEADLINES}", of)
    for number, step in enumerate(steps, 1):
        if step.WhichOneof("due") is None:
            raise _wrong("deadlines", f"{number} says no time", of)
        if not _well_formed(step):
            raise _wrong("deadlines", f"{number} is no time within a century", of)
        if not (math.isfinite(step.reward) and LATE <= step.reward <= FULL):
            told = f"{number} earns {step.reward:g}: a reward is {LATE:g} to {FULL:g}"
            raise _wrong("deadlines", told, of)


def _check_on_miss(word: str) -> None:
    if word not in ON_MISS:
        known = ", ".join(ON_MISS)
        meant = did_you_mean(word, ON_MISS)
        raise _wrong("on_miss", f"{shown(word)} is not one of {known}{meant}", "")


def _wrong(field: str, what: str, of: str = "spec.") -> InvalidRequest:
    return InvalidRequest(f"{field} {what}", field=f"{of}{field}")


def _well_formed(step: DeadlineStep) -> bool:
    if step.HasField("due_time"):
        at = step.due_time
        return 0 <= at.seconds <= LATEST_S and 0 <= at.nanos < 1_000_000_000
    after = step.due_duration
    sane = abs(after.nanos) < 1_000_000_000 and after.seconds * after.nanos >= 0
    return sane and abs(after.seconds) <= LONGEST_DURATION_S


def _asked(step: DeadlineStep) -> AskedDeadline:
    if step.HasField("due_time"):
        return AskedDeadline(step.reward, at_s=from_timestamp(step.due_time))
    return AskedDeadline(step.reward, after_s=from_duration(step.due_duration))


def _state(job: Job, profile_s: float | None, *, offered: bool) -> str:
    if job.promised is not None:
        return GUARANTEED
    if job.verdict:
        return UNGUARANTEED
    if not offered:
        return "not_offered"
    if job.ended or job.timed or is_awaited(job, profile_s):
        return "undecided"
    return "run_time_unknown"


def _add_alternative(message: Promise, alternative: Alternative) -> None:
    told = Promise(
        earliest_time=to_timestamp(alternative.earliest_s),
        fix=alternative.fix,
        fix_gpu_count=alternative.fix_gpus,
        fix_time=to_timestamp(alternative.fix_s),
    )
    message.MergeFrom(told)
