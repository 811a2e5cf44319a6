"""What users see of preemptions: for whom, by which rule, what was lost, and what the next would
cost.
"""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.config import OTHERS
from dlq_master.control.loop.ports import ReadModel
from dlq_master.model.jobs.job import Job, Taken
from dlq_master.model.words.sentence import preempted

NAMED = OTHERS[0]


def add_preemptions(message: job_pb2.Job, job: Job, read: ReadModel) -> None:
    """Enter them."""
    message.displaced_count = job.displaced
    if job.taken is not None and not (job.ended and job.taken.lost_s is None):
        taken = job.taken if read.others_shown == NAMED else job.taken._replace(user="")
        message.last_preemption.CopyFrom(_taken(taken))
    if not job.ended:
        message.stop_cost_duration.CopyFrom(to_duration(read.stop_cost_s(job)))
        message.observed_resume_count = len(job.resumes)


def _taken(taken: Taken) -> job_pb2.Preemption:
    message = job_pb2.Preemption(
        for_job_id=str(taken.by),
        user=taken.user,
        rule=taken.rule,
        decide_time=to_timestamp(taken.time_s),
        detail=preempted(taken),
    )
    if taken.lost_s is not None:
        message.lost_duration.CopyFrom(to_duration(taken.lost_s))
    return message
