"""Tasks of arrays go by their array and index, in messages and in dependencies."""

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array, Dependency, Relation, Term
from dlq_master.model.jobs.naming import shown_dependency, shown_id
from support.builders import a_job

TASK = a_job(33)._replace(array=Array(JobId(28), 8, 0, 0, 7, 1), array_index=4)
PLAIN = a_job(17)


def test_a_task_is_named_by_its_array() -> None:
    assert (shown_id(TASK), shown_id(PLAIN)) == ("28_4", "17")


def test_a_dependency_names_tasks_arrays_and_jobs_as_they_are_written() -> None:
    depends = Dependency(
        (
            Term(Relation.AFTEROK, JobId(33)),
            Term(Relation.AFTERANY, JobId(17)),
            Term(Relation.AFTER, JobId(28), array=True),
            Term(Relation.AFTER, JobId(5)),
            Term(Relation.SINGLETON),
        )
    )
    known = {TASK.job_id: TASK, PLAIN.job_id: PLAIN}
    told = shown_dependency(depends, known.get)
    assert told == "afterok:28_4,afterany:17,after:28_*,after:5,singleton"
    assert shown_dependency(depends._replace(any=True), known.get) == told.replace(",", "?")
