"""How people name jobs and what they wait for: a task is `28_4`, not by a number it never told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Block, Dependency, Term
from dlq_master.model.jobs.job import Job
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode

JobOf = Callable[[JobId], Job | None]


def shown_id(job: Job) -> str:
    """`17`; of a task `12_4`, which every command takes."""
    return f"{job.job_id}" if job.array is None else f"{job.array.array_id}_{job.array_index}"


def member_name(job: Job) -> str:
    """`actor` in its group; `actor.3`, from 0, where that has more than one."""
    group = job.group
    if group is None:
        return ""
    member, number = group.member(job.array_index)
    return member.name if member.jobs == 1 else f"{member.name}.{number}"


def shown_term(term: Term, job_of: JobOf) -> str:
    """`afterok:12_4`, `afterok:12_*` for a whole array; a job that `job_of` does not know goes by
    its number.
    """
    if term.array:
        return term.named(f"{term.target}_*")
    job = job_of(term.target) if term.target else None
    return str(term) if job is None else term.named(shown_id(job))


def shown_dependency(depends: Dependency, job_of: JobOf) -> str:
    """`afterok:12_4,afterany:14`, as it can be written again."""
    return ("?" if depends.any else ",").join(shown_term(term, job_of) for term in depends.terms)


def blocks(job: Job, now_s: float, name_of: Callable[[Dependency], str] = str) -> Iterator[Reason]:
    """Every reason why a job may not wait for GPUs yet."""
    if job.blocked is Block.BACKOFF and job.retry_time_s is not None:
        left_s = round(max(0.0, job.retry_time_s - now_s), 3)
        yield Reason(ReasonCode.BACKOFF, "seconds", have=left_s, detail=", ".join(job.failed_nodes))
    depends = job.depends
    if depends is not None and depends.met is not True:
        open_terms = [term for term in depends.terms if term.met is None]
        targets = dict.fromkeys(term.target for term in open_terms if term.target)
        named = tuple(targets)[:BLOCKERS_NAMED]
        shown = depends._replace(terms=tuple((open_terms or depends.terms)[:BLOCKERS_NAMED]))
        yield Reason(ReasonCode.DEPENDENCY, blocking_jobs=named, detail=name_of(shown))
    if job.begin_time_s is not None and job.begin_time_s > now_s:
        left_s = round(job.begin_time_s - now_s, 3)
        yield Reason(ReasonCode.BEGIN_TIME, "seconds", have=left_s)
    if job.blocked is Block.ARRAY_LIMIT and job.array is not None:
        array = job.array
        yield Reason(
            ReasonCode.ARRAY_LIMIT, "tasks", array.tasks, array.concurrent, (), str(array.array_id)
        )
