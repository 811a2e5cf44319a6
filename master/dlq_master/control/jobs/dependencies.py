"""From the jobs that a user names to a dependency on jobs that are there.

A job may depend on older ones alone, so no circle can arise.
"""

from collections.abc import Callable, Sequence
from functools import partial

from dlq_common.errors import InvalidRequest, NotFound
from dlq_master.control.jobs import gates
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import AskedDependency, AskedTerm, Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import arrays
from dlq_master.model.jobs.eligible import Array, Dependency, Relation, Term
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id

FIELD = "spec.dependency"


def dependency(
    turn: Turn, caller: Caller, asked: AskedDependency | None, before: JobId | None = None
) -> Dependency | None:
    """The dependency of a job that is older than `before` (None: of a new one); None for no terms.

    NotFound for a job that is not there, or not the caller's to see: the same words for both.
    """
    if asked is None or not asked.terms:
        return None
    seen: _Seen = {}
    terms = tuple(_term(turn, caller, term, before, seen) for term in asked.terms)
    return Dependency(tuple(dict.fromkeys(terms)), asked.any, asked.cancel_if_never)


_Seen = dict[JobId, list[Job]]  # tasks of arrays that this dependency has named


def _term(turn: Turn, caller: Caller, asked: AskedTerm, before: JobId | None, known: _Seen) -> Term:
    if asked.relation is Relation.SINGLETON:
        return Term(asked.relation)
    job, array = _found(turn, asked)
    seen = job if array is None else turn.known_job(JobId(array.array_id + 1))
    if seen is None or not caller.may_see(seen):
        name = f"{asked.job_id}" if asked.index is None else f"{asked.job_id}_{asked.index}"
        raise NotFound(f"there is no job {name} to depend on", kind="job", id=name)
    if before is not None and seen.job_id >= before:
        raise InvalidRequest(
            f"job {shown_id(seen)} came after job {before}, which cannot depend on it", field=FIELD
        )
    if array is None:
        return _delayed(turn, asked, _of_job(turn, asked.relation, seen), lambda: [seen])
    tasks = partial(_tasks, turn, array, known)
    tally = _tally(turn.state.jobs.gates, array.array_id, known, tasks)
    term = Term(asked.relation, array.array_id, True, gates.of_array(asked.relation, tally))
    return _delayed(turn, asked, term, tasks)


def _tally(
    index: gates.Gates, array_id: JobId, known: _Seen, tasks: Callable[[], Sequence[Job]]
) -> gates.Tally:
    """That of an array. One on which jobs depend is kept up to date: a hundred terms, or all tasks
    of an array, may name another one of thousands.
    """
    kept = index.tallies.get(array_id)
    if kept is None or not (array_id in known or (kept.whole and array_id in index.dependents)):
        kept = index.tallies[array_id] = gates.tally_of(tasks(), whole=True)
    return kept


def _tasks(turn: Turn, array: Array, known: _Seen) -> Sequence[Job]:
    if array.array_id not in known:
        known[array.array_id] = list(arrays.tasks(turn.known_job, array))
    return known[array.array_id]


def _delayed(turn: Turn, asked: AskedTerm, term: Term, others: Callable[[], Sequence[Job]]) -> Term:
    """Its delay counts from starts that may be long ago, and leave memory."""
    term = term._replace(delay_s=asked.delay_s)
    if not (term.met and asked.delay_s):
        return term
    due_s = max(map(gates.started_s, others())) + asked.delay_s
    return gates.after_delay(term._replace(due_s=due_s), turn.now_s)


def of_task(turn: Turn, job: Job) -> Job:
    """A task of an array with `aftercorr` waits for the task of its own index, and not for the
    whole other array. Without such a task it waits for nothing.
    """
    depends = job.depends
    if job.array is None or depends is None:
        return job
    terms = tuple(
        _corresponding(turn, job, term) if term.relation is Relation.AFTERCORR else term
        for term in depends.terms
    )
    return job._replace(depends=depends._replace(terms=terms))


def _corresponding(turn: Turn, job: Job, term: Term) -> Term:
    array = arrays.array_of(turn.known_job, term.target) if term.array else None
    if array is None:
        return term
    other = arrays.task_of(turn.known_job, array, job.array_index)
    if other is None:
        return term._replace(met=True)
    return _of_job(turn, term.relation, other)


def _found(turn: Turn, asked: AskedTerm) -> tuple[Job | None, Array | None]:
    """The job or task, or else the whole array, of that name."""
    if asked.index is None and (job := turn.known_job(asked.job_id)) is not None:
        return job, None
    array = arrays.array_of(turn.known_job, asked.job_id)
    if array is None or asked.index is None:
        return None, array
    return arrays.task_of(turn.known_job, array, asked.index), None


def _of_job(turn: Turn, relation: Relation, job: Job) -> Term:
    """Jobs that ended long ago are judged now, since they will not change any more."""
    here = job.job_id in turn.state.cluster.jobs
    return Term(relation, job.job_id, False, None if here else gates.of_job(relation, job))
