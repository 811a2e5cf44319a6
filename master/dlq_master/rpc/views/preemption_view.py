"""Messages about estimates of run times, preemptions (victims, rules, costs), and work lost by a
stop.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlq.v1 import job_pb2
from dlq.v1.job_pb2 import RunEstimate
from dlq_common.text.names import GUEST_MARK
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.attempts.work_loss import loss_words
from dlq_master.control.config import OTHERS
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.unsaved import Loss, has_never_saved, stop_loss
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job, Taken
from dlq_master.model.words.estimate_words import known
from dlq_master.model.words.sentence import preempted

NAMED = OTHERS[0]


def add_preemptions(message: job_pb2.Job, job: Job, read: Published) -> None:
    """Add the job's preemptions."""
    message.displaced_count = job.displaced
    if job.taken is not None and not (job.ended and job.taken.lost_s is None):
        named = read.others_shown == NAMED and GUEST_MARK not in job.user
        taken = job.taken if named else job.taken._replace(user="")
        message.last_preemption.CopyFrom(_taken(taken))


def _taken(taken: Taken) -> job_pb2.Preemption:
    return job_pb2.Preemption(
        for_job_id=str(taken.by),
        user=taken.user,
        rule=taken.rule,
        decide_time=to_timestamp(taken.time_s),
        detail=preempted(taken),
        lost_duration=to_duration(taken.lost_s),
    )


def estimate_message(job: Job, attempt: Attempt | None, profile_s: float | None) -> RunEstimate:
    """The estimate of its run time. `profile_s`: T_profile of the policy; None: it measures no
    jobs.
    """
    basis = job.basis
    return RunEstimate(
        source="" if basis.source is None else basis.source.value,
        confidence="" if basis.confidence is None else basis.confidence.value,
        unmeasured="" if basis.unmeasured is None else basis.unmeasured.value,
        detail=known(job, attempt, profile_s),
        run_duration=to_duration(job.duration_estimate_s),
        step_duration=to_duration(basis.step_s),
        rests_on=basis.rests_on,
    )


def add_stop_loss(message: job_pb2.Job, job: Job, attempt: Attempt, now_s: float) -> None:
    """Add what a stop of this running attempt would lose, or loses."""
    message.never_saved = has_never_saved(job, attempt)
    loss = stop_loss(job, attempt, now_s)
    if loss is not None:
        message.stop_loss.CopyFrom(_loss_message(job, loss))


def node_losses(node_id: NodeId, read: Published, now_s: float) -> Iterator[job_pb2.WorkLoss]:
    """The losses of jobs that leave this node because it drains."""
    for key in read.attempts_on(node_id):
        job, attempt = read.job(key.job_id), read.attempt(key)
        if job is None or attempt is None or attempt.stop_cause is None:
            continue
        loss = stop_loss(job, attempt, now_s)
        if loss is not None:
            yield _loss_message(job, loss)


def _loss_message(job: Job, loss: Loss) -> job_pb2.WorkLoss:
    return job_pb2.WorkLoss(
        job_id=str(job.job_id),
        work_duration=to_duration(loss.work_s),
        gpu_count=0 if job.request.without_gpus else loss.gpus,
        ground=loss.ground,
        detail=loss_words(job, loss),
    )
