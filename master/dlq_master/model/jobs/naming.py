"""How people name jobs and what they wait for: a task is `28_4`, not by a number it never told."""

from __future__ import annotations

from collections.abc import Callable

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Dependency, Term
from dlq_master.model.jobs.job import Job

JobOf = Callable[[JobId], Job | None]


def shown_id(job: Job) -> str:
    """`17`; of a task `12_4`, which every command takes."""
    return f"{job.job_id}" if job.array is None else f"{job.array.array_id}_{job.array_index}"


def shown_term(term: Term, job_of: JobOf) -> str:
    """`afterok:12_4`; a job that `job_of` does not know goes by its number."""
    job = None if term.array or not term.target else job_of(term.target)
    return str(term) if job is None else f"{term.relation.value}:{shown_id(job)}"


def shown_dependency(depends: Dependency, job_of: JobOf) -> str:
    """`afterok:12_4,afterany:14`, as it can be written again."""
    return ("?" if depends.any else ",").join(shown_term(term, job_of) for term in depends.terms)
