"""The jobs in memory in blocks of neighbouring ids: a reader of a long list takes each as a whole.

A block is a value: a change of one of its jobs makes another block of it. So all that a reader has
found out about a block, such as its encoded rows, holds for as long as the block is there. There
are blocks of everybody's jobs and of one user's. They are made when a reader first asks, and none
outlives the master.

A search that was made before looks at the jobs of changed blocks alone: readers leave notes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState

EVERYBODY = ""
MOST_SUBJECTS: Final = 64  # of notes; of 100,000 jobs each takes about 200 kB
_BITS = 6  # of an id within its block


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class JobBlock:
    """Neighbouring jobs in the order of their ids, and what they have in common."""

    jobs: tuple[Job, ...]
    owners: tuple[Job, ...]  # the oldest of each person: a caller sees all jobs if all of these
    queues: frozenset[str]
    states: frozenset[JobState]  # as they are stored
    living: bool  # an attempt of one of them lives: others than its stored state are shown
    ended: bool  # one of them has
    checks: bool  # one of them is a check of a node


class JobBlocks:
    """The blocks of jobs that come, change and go."""

    def __init__(self, jobs: Mapping[JobId, Job]) -> None:
        """`jobs`: all of them, also later."""
        self._jobs = jobs
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._numbers: dict[str, list[int]] = {}
        self._made: dict[tuple[str, int], JobBlock] = {}
        for job in jobs.values():
            self._counted(job, 1)

    def changed(self, before: Job | None, job: Job) -> None:
        """It is new, or was another before."""
        if before is None:
            self._counted(job, 1)
        else:
            self._dropped(job)

    def gone(self, job: Job) -> None:
        """It has left memory."""
        self._counted(job, -1)

    def numbers(self, user: str, after: int) -> Sequence[int]:
        """The blocks of this user's jobs, or of EVERYBODY's, with ids above `after`; rising."""
        numbers = self._numbers.get(user)
        if numbers is None:
            if user not in self._counts:  # any word that somebody asks for: nothing is kept of it
                return ()
            numbers = self._numbers[user] = sorted(self._counts[user])
        return numbers[bisect_left(numbers, (after + 1) >> _BITS) :]

    def block(self, user: str, number: int) -> JobBlock:
        """One of them, perhaps empty by now: the same object until one of its jobs changes."""
        made = self._made.get((user, number))
        if made is None:
            found = self._jobs
            here = [found[JobId(one)] for one in ids_of(number) if one in found]
            made = _block([job for job in here if user in (EVERYBODY, job.user)])
            if made.jobs:
                self._made[user, number] = made
        return made

    def _counted(self, job: Job, change: int) -> None:
        number = job.job_id >> _BITS
        for user in (EVERYBODY, job.user):
            counts = self._counts[user]
            there = counts.get(number, 0)
            counts[number] = there + change
            if not there + change:
                del counts[number]
                if not counts:
                    del self._counts[user]
            if not there or not there + change:  # the block is new, or gone
                self._numbers.pop(user, None)
            self._made.pop((user, number), None)

    def _dropped(self, job: Job) -> None:
        number = job.job_id >> _BITS
        self._made.pop((EVERYBODY, number), None)
        self._made.pop((job.user, number), None)


Notes = WeakKeyDictionary[JobBlock, Any]


class BlockNotes:
    """Notes of readers about blocks, for the next reader of the same. They go with their blocks,
    and those of subjects that nobody has asked for lately make room.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Notes] = OrderedDict()

    def about(self, subject: Hashable) -> Notes:
        """The notes of one subject. It names all that a note rests on, but for the block."""
        notes = self._kept.get(subject)
        if notes is None:
            if len(self._kept) >= MOST_SUBJECTS:
                self._kept.popitem(last=False)
            notes = self._kept[subject] = WeakKeyDictionary()
        self._kept.move_to_end(subject)
        return notes


def ids_of(number: int) -> range:
    """The ids of a block, whether there are jobs of all of them or not."""
    return range(number << _BITS, (number + 1) << _BITS)


def _block(jobs: Sequence[Job]) -> JobBlock:
    return JobBlock(
        jobs=tuple(jobs),
        owners=tuple(_oldest(jobs)),
        queues=frozenset(job.queue for job in jobs),
        states=frozenset(job.state for job in jobs),
        living=any(job.live_attempt is not None for job in jobs),
        ended=any(job.ended or job.end_time_s is not None for job in jobs),
        checks=any(job.check for job in jobs),
    )


def _oldest(jobs: Iterable[Job]) -> Iterable[Job]:
    """The first job that each person submitted. A job without a person belongs to the owner of the
    name at its submit time.
    """
    oldest: dict[tuple[str, str], Job] = {}
    for job in jobs:
        known = oldest.setdefault((job.user, job.person), job)
        if job.submit_time_s < known.submit_time_s:
            oldest[job.user, job.person] = job
    return oldest.values()
