"""How long a job is taken to run, on the wire."""

from __future__ import annotations

from dlq.v1.job_pb2 import RunEstimate
from dlq_common.text.wire import to_duration
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job
from dlq_master.model.words.estimate_words import known


def estimate_message(job: Job, attempt: Attempt | None, profile_s: float | None) -> RunEstimate:
    """What is known of its run time. `profile_s`: T_profile of the policy; None: it measures
    nobody.
    """
    basis = job.basis
    message = RunEstimate(
        source="" if basis.source is None else basis.source.value,
        confidence="" if basis.confidence is None else basis.confidence.value,
        unmeasured="" if basis.unmeasured is None else basis.unmeasured.value,
        detail=known(job, attempt, profile_s),
    )
    if job.duration_estimate_s is not None:
        message.run_duration.CopyFrom(to_duration(job.duration_estimate_s))
    if basis.step_s is not None:
        message.step_duration.CopyFrom(to_duration(basis.step_s))
    return message
