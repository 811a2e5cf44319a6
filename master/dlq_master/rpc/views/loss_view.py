"""The users' view of work that a stop loses."""

from __future__ import annotations

from collections.abc import Iterator

from dlq.v1 import job_pb2
from dlq_common.text.wire import to_duration
from dlq_master.control.attempts.losses import loss_words
from dlq_master.control.read_model.ports import ReadModel
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.unsaved import Loss, has_never_saved, stop_loss
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job


def add_stop_loss(message: job_pb2.Job, job: Job, attempt: Attempt, now_s: float) -> None:
    """Enter what a stop of this running attempt would lose, or loses."""
    message.never_saved = has_never_saved(job, attempt)
    loss = stop_loss(job, attempt, now_s)
    if loss is not None:
        message.stop_loss.CopyFrom(_message(job, loss))


def node_losses(node_id: NodeId, read: ReadModel, now_s: float) -> Iterator[job_pb2.WorkLoss]:
    """The losses of jobs that leave this node because it drains."""
    for key in read.attempts_on(node_id):
        job, attempt = read.job(key.job_id), read.attempt(key)
        if job is None or attempt is None or attempt.stop_cause is None:
            continue
        loss = stop_loss(job, attempt, now_s)
        if loss is not None:
            yield _message(job, loss)


def _message(job: Job, loss: Loss) -> job_pb2.WorkLoss:
    return job_pb2.WorkLoss(
        job_id=str(job.job_id),
        work_duration=to_duration(loss.work_s),
        gpu_count=loss.gpus,
        ground=loss.ground,
        detail=loss_words(job, loss),
    )
