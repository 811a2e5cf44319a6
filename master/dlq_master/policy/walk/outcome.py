"""What a walk over the jobs decided, before it becomes verbs."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.pool import Parts


class Chosen(NamedTuple):
    """A waiting job that starts now on these GPUs."""

    job_id: JobId
    parts: Parts


class Outranked(NamedTuple):
    """Work that has to leave, and one of the jobs that it leaves for."""

    key: AttemptKey
    for_job: JobId


class Outcome:
    """Filled in by the walk, in its order.

    `claims`: jobs that cannot start yet but for which GPUs are kept from lower ranks; True: as the
    reservation of a promoted job, False: it fits once they are released.
    """

    __slots__ = ("chosen", "claims", "head_of_line", "outranked")

    def __init__(self) -> None:
        self.chosen: list[Chosen] = []
        self.outranked: list[Outranked] = []
        self.claims: dict[JobId, bool] = {}
        self.head_of_line: JobId | None = None  # the job that nobody may pass
