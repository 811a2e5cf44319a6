"""Whose job it is: users see and touch their own, operators and admins all of them.

Of other people's living jobs a user sees in a list as much as a queue shows. That is who runs how
much, where and how long, as far as [visibility] allows. `job_view.redacted` is all of it. Names,
commands, environments, labels and output stay private. No other call takes a job of somebody
else's.
"""

from __future__ import annotations

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
FEW = 8  # tasks that are quicker found one by one than all together


def others_for(read: Published, caller: Caller) -> str:
    """The facts of other people's jobs that the caller sees; guests of other organisations none."""
    return HIDDEN if caller.is_guest else read.others_shown


def may_list(read: Published, caller: Caller, job: Job) -> bool:
    """Whether the caller's lists hold it: whole, or only that it is there."""
    return caller.may_see(job) or (others_for(read, caller) != HIDDEN and not job.ended)


def sees_block(caller: Caller, block: JobBlock) -> bool | None:
    """Whether the caller may see each job of a block, or none; None: that differs."""
    if all(caller.may_see(owner) for owner in block.owners):
        return True
    return None if any(owner.user == caller.name for owner in block.owners) else False


def names_others(read: Published, caller: Caller) -> bool:
    """Whether the caller may know whose a job of somebody else's is."""
    return caller.sees_all or others_for(read, caller) == NAMED


def hides_others(read: Published, caller: Caller) -> bool:
    """Whether jobs of other people do not exist for the caller."""
    return not caller.sees_all and others_for(read, caller) == HIDDEN


def visible_job(read: Published, caller: Caller, text: str) -> Job:
    """The job with this id, or the one task; NotFound also for another user's."""
    found = visible_jobs(read, caller, text)
    if len(found) > 1:
        array = found[0].array
        number = "" if array is None else f"{array.array_id}_{found[0].array_index}"
        raise InvalidRequest(
            f"{shown(text)} are {len(found)} jobs of an array: say which, such as {number}",
            field="job_id",
        )
    return found[0]


def visible_jobs(read: Published, caller: Caller, text: str) -> list[Job]:
    """The job with this id; or those of `12` (a whole array), `12_4`, `12_[0-3]`. Never none.

    NotFound when one of them is not there, or none of the caller's business: the same words for
    both.
    """
    found = jobs_named(read, text, "job_id")
    known = [job for job in found if job is not None]
    if not known or len(known) < len(found):
        raise NotFound(f"there is no job {_shown(text)}", kind="job", id=text[:64])
    if not all(caller.may_see(job) for job in known):
        raise HiddenFromCaller(f"there is no job {_shown(text)}", kind="job", id=text[:64])
    return known


def jobs_named(read: Published, text: str, field: str) -> list[Job | None]:
    """The job of a name, of any owner; None for what is not there."""
    if len(text) > LONGEST_NAME:
        told = f"{shown(text)} is longer than {LONGEST_NAME} characters: name fewer jobs at once"
        raise InvalidRequest(told, field=field)
    try:
        if (named := read_tasks(text)) is not None:
            return _tasks_named(read, named, field)
    except ValueError as error:
        raise InvalidRequest(f"{shown(text)}: {error}", field=field) from None
    job_id = job_id_of(text, field)
    job = read.job(job_id)
    array = None if job is not None else arrays.array_of(read.job, job_id)
    return [job] if array is None else list(arrays.tasks(read.job, array))


def _tasks_named(read: Published, named: NamedTasks, field: str) -> list[Job | None]:
    """ValueError: an index is named twice. The work is bounded by the tasks that are there."""
    array = arrays.array_of(read.job, job_id_of(named.array_id, field))
    if array is None or named.task_count > array.tasks:
        return [None]
    indexes = expand(named.ranges)
    if len(indexes) <= FEW:
        return [arrays.task_of(read.job, array, index) for index in indexes]
    tasks = {task.array_index: task for task in arrays.tasks(read.job, array)}
    return [tasks.get(index) for index in indexes]


def cost_of(text: str, found: int) -> int:
    """The work for a name that means `found` jobs, in jobs that are looked at."""
    return 1 + found + RANGE_COST * text.count(",")


def may_see_event(read: Published, caller: Caller, event: JournalEvent) -> bool:
    """Users see the events of their own jobs; those of nodes and of the cluster are operators'."""
    if caller.hears_all:
        return True
    owner = None if event.job_id is None else read.owner(event.job_id)
    return owner is not None and caller.owns(owner)


def _shown(text: str) -> str:
    """A plain number without quotes; any other word in quotes."""
    return text if text.isascii() and text.isdecimal() and len(text) <= 20 else shown(text)
