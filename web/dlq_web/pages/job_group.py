"""The part of a job's page about its group: jobs that start together, and how each ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.output.render import OutputLook
from dlq_common.errors import DlqError
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages import views

MOST_MEMBERS = 256  # as many as a group can have
_LIST = named("JobService", "ListJobs")
# docs/using/groups.md, The end
_ENDS = {
    "all": "the others are stopped",
    "each": "the others go on; if it fails, the group has failed",
    "alone": "the others go on",
}


class GroupRow(NamedTuple):
    """A job of a group."""

    job: views.JobRow
    member: str
    number: int  # of the member's jobs, from 0
    ends: str  # the meaning of its end for the group


async def group_of(line: Asking, job: job_pb2.Job, look: OutputLook) -> Sequence[GroupRow]:
    """The jobs of its group, itself among them; none: it is in no group."""
    place = job.array_task
    if not place.member:
        return ()
    asked = job_service_pb2.ListJobsRequest(
        user=job.user, job_ids=[place.array_id], page_size=MOST_MEMBERS
    )
    try:
        found = (await line.call(_LIST, asked)).jobs
    except DlqError:  # some are kept no longer
        return ()
    return [_row(one, look) for one in found]


def _row(job: job_pb2.Job, look: OutputLook) -> GroupRow:
    place = job.array_task
    ends = _ENDS.get(place.ends, place.ends)
    return GroupRow(views.job_row(job, look), place.member, place.member_index, ends)
