"""The jobs that a caller may see: users their own ones, operators and admins all.

In lists a user sees facts about other users' living jobs, as [visibility] allows: user, GPUs, nodes
and times. `job_view.redacted` has all of them. Names, commands, environments, labels and output
stay private. No other call accepts another user's job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Generic, NamedTuple, TypeVar

from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.arrays import NamedTasks, expand, read_tasks
from dlq_common.text.names import shown
from dlq_master.control.config import OTHERS
from dlq_master.control.read_model.job_blocks import JobBlock
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.jobs import arrays
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.errors import HiddenFromCaller
from dlq_master.rpc.specs.intake import job_id_of

NAMED, _NAMELESS, HIDDEN = OTHERS
LONGEST_NAME = 16 * 1024  # of `12_[1,5,...]`: read at once, it may hold the loop for some ms
RANGE_COST = 10  # to read one of its ranges, in jobs that are looked at

_Found = TypeVar("_Found")


class NamedJobs(NamedTuple, Generic[_Found]):
    """The jobs that one name of a request means, and the cost of the lookup (`cost_of`)."""

    jobs: Sequence[_Found]
    cost: int


def others_for(read: Published, caller: Caller) -> str:
    """The facts about other users' jobs that the caller sees. Guests of other organisations see
    none.
    """
    return HIDDEN if caller.is_guest else read.others_shown


def may_list(read: Published, caller: Caller, job: Job) -> bool:
    """Whether the caller's lists have this job, with all facts or with few."""
    return caller.may_see(job) or (others_for(read, caller) != HIDDEN and not job.ended)


def sees_block(caller: Caller, block: JobBlock) -> bool | None:
    """Whether the caller may see each job of a block, or none; None: that differs."""
    if all(caller.may_see(owner) for owner in block.owners):
        return True
    return None if any(owner.user == caller.name for owner in block.owners) else False


def names_others(read: Published, caller: Caller) -> bool:
    """Whether the caller may know the users of other users' jobs."""
    return caller.sees_all or others_for(read, caller) == NAMED


def hides_others(read: Published, caller: Caller) -> bool:
    """Whether other users' jobs do not exist for the caller."""
    return not caller.sees_all and others_for(read, caller) == HIDDEN


def visible_job(read: Published, caller: Caller, text: str) -> Job:
    """The job with this id, or one task. NotFound also for another user's job."""
    found = visible_jobs(read, caller, text, most=2)
    if len(found) > 1:
        array, named = found[0].array, read_tasks(text)
        number = "" if array is None else f"{array.array_id}_{found[0].array_index}"
        count = named.task_count if named is not None else len(found)
        if named is None and array is not None:
            count = array.tasks
        raise InvalidRequest(
            f"{shown(text)} are {count} jobs of an array: say which, such as {number}",
            field="job_id",
        )
    return found[0]


def visible_jobs(read: Published, caller: Caller, text: str, most: int | None = None) -> list[Job]:
    """The job with this id; or those of `12` (a whole array), `12_4`, `12_[0-3]`. Never empty.

    `most`: only the first ones are looked up. Tasks that ended long ago are on the disk, and
    10,000 of them take a quarter of a second. NotFound: one of them does not exist, or is hidden
    from the caller. The words are the same for both.
    """
    found = jobs_named(read, text, "job_id", most)
    known = [job for job in found if job is not None]
    if not known or len(known) < len(found):
        raise NotFound(f"there is no job {_shown(text)}", kind="job", id=text[:64])
    if not all(caller.may_see(job) for job in known):
        raise HiddenFromCaller(f"there is no job {_shown(text)}", kind="job", id=text[:64])
    return known


def jobs_named(read: Published, text: str, field: str, most: int | None = None) -> list[Job | None]:
    """The jobs of a name, of any user, `most` of them; None for each that does not exist."""
    if len(text) > LONGEST_NAME:
        told = f"{shown(text)} is longer than {LONGEST_NAME} characters: name fewer jobs at once"
        raise InvalidRequest(told, field=field)
    try:
        if (named := read_tasks(text)) is not None:
            return _tasks_named(read, named, field, most)
    except ValueError as error:
        raise InvalidRequest(f"{shown(text)}: {error}", field=field) from None
    job_id = job_id_of(text, field)
    job = read.job(job_id)
    array = None if job is not None else arrays.array_of(read.job, job_id)
    return [job] if array is None else list(islice(arrays.tasks(read.job, array), most))


def _tasks_named(
    read: Published, named: NamedTasks, field: str, most: int | None
) -> list[Job | None]:
    """The tasks of an array. ValueError: an index is named twice. The work is bounded by the
    existing tasks.
    """
    array = arrays.array_of(read.job, job_id_of(named.array_id, field))
    if array is None or named.task_count > array.tasks:
        return [None]
    indexes = expand(named.ranges)[:most]
    if len(indexes) * array.tasks.bit_length() <= array.tasks:  # of thousands perhaps
        return [arrays.task_of(read.job, array, index) for index in indexes]
    tasks = {task.array_index: task for task in arrays.tasks(read.job, array)}
    return [tasks.get(index) for index in indexes]


def each_named(
    names: Iterable[str],
    look_up: Callable[[str], Sequence[_Found]],
    field: str,
    most_cost: float = inf,
) -> Iterator[NamedJobs[_Found]]:
    """Look one name after the other up, as the caller takes them.

    InvalidRequest for `field` once all names so far cost more than `most_cost`; an error of
    `look_up` passes through.
    """
    total_cost = 0
    for name in names:
        jobs = look_up(name)
        cost = cost_of(name, len(jobs))
        total_cost += cost
        if total_cost > most_cost:
            raise InvalidRequest(f"more than {most_cost} jobs at once", field=field)
        yield NamedJobs(jobs, cost)


def cost_of(text: str, found: int) -> int:
    """The cost of a name that means `found` jobs, counted in jobs looked at."""
    return 1 + found + RANGE_COST * text.count(",")


def may_see_event(read: Published, caller: Caller, event: JournalEvent) -> bool:
    """Users see events of their own jobs; only operators see those of nodes and of the cluster."""
    if caller.hears_all:
        return True
    owner = None if event.job_id is None else read.owner(event.job_id)
    return owner is not None and caller.owns(owner)


def _shown(text: str) -> str:
    """A plain number without quotes; any other text in quotes."""
    return text if text.isascii() and text.isdecimal() and len(text) <= 20 else shown(text)
