"""What a walk over the jobs decided, before it becomes verbs."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.policy.space import Found


class Chosen(NamedTuple):
    """A waiting job that starts now on these GPUs."""

    job_id: JobId
    found: Found


class Outranked(NamedTuple):
    """Work that has to leave, and one of the jobs that it leaves for."""

    key: AttemptKey
    for_job: JobId


class Claim(NamedTuple):
    """GPUs kept from lower ranks for a job that cannot start yet."""

    job_id: JobId
    found: Found
    reserved: bool  # for a promoted job; otherwise it fits once they are released


class Outcome(NamedTuple):
    chosen: list[Chosen]
    outranked: list[Outranked]
    claims: list[Claim]
    head_of_line: JobId | None = None  # the job that nobody may pass


def nothing() -> Outcome:
    return Outcome([], [], [])
