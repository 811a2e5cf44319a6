"""Whose job it is: users see and touch their own, operators and admins all of them."""

from __future__ import annotations

from dlq_common.errors import NotFound
from dlq_master.control.ports import Readable
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.job import Job
from dlq_master.rpc.errors import HiddenFromCaller
from dlq_master.rpc.intake import job_id_of


def may_see(caller: Caller, job: Job) -> bool:
    """Whether this job is any business of the caller's."""
    return caller.sees_all or job.user == caller.name


def visible_job(read: Readable, caller: Caller, text: str) -> Job:
    """The job with this id, if the caller may know of it; else the same NotFound as for none."""
    job_id = job_id_of(text)
    job = read.job(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
    if not may_see(caller, job):
        raise HiddenFromCaller(f"there is no job {job_id}", kind="job", id=job_id)
    return job


def may_see_event(read: Readable, caller: Caller, event: JournalEvent) -> bool:
    """Users see the events of their own jobs; those of nodes and of the cluster are operators'."""
    if caller.sees_all:
        return True
    return event.job_id is not None and read.owner(event.job_id) == caller.name
