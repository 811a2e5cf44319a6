"""Arrays by number: the tasks follow the array's own number in the order of their indexes."""

from collections.abc import Callable, Iterator

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Job

JobOf = Callable[[JobId], Job | None]


def array_of(job_of: JobOf, array_id: JobId) -> Array | None:
    """The array of that number; None when a job has it, or nobody."""
    first = job_of(JobId(array_id + 1))
    if first is None or first.array is None or first.array.array_id != array_id:
        return None
    return first.array


def tasks(job_of: JobOf, array: Array) -> Iterator[Job]:
    """All its tasks, the lowest index first."""
    for number in range(array.array_id + 1, array.array_id + array.tasks + 1):
        task = job_of(JobId(number))
        if task is not None:
            yield task


def task_of(job_of: JobOf, array: Array, index: int) -> Job | None:
    """The task with this index, after a few looks; None when the array has none. In an array with
    even steps the first look finds it.
    """
    low, high = array.array_id + 1, array.array_id + array.tasks
    likely = array.array_id + 1 + (index - array.first) // max(1, array.step)
    if low <= likely <= high:
        task = job_of(JobId(likely))
        if task is not None and task.array_index == index:
            return task
    while low <= high:
        middle = (low + high) // 2
        task = job_of(JobId(middle))
        if task is None or task.array_index == index:
            return task
        if task.array_index < index:
            low = middle + 1
        else:
            high = middle - 1
    return None
