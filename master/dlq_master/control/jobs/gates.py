"""Indexes of blocked jobs: the jobs that they depend on, and the times when they are judged again.

Nothing here is stored. The decisions are in the jobs (`blocked`, the terms of `depends`), and a
starting master builds the indexes from them. Without blocked jobs the indexes are empty and cost
nothing. Agents and silence have no part in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeVar

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Block, Dependency, MemberEnds, Relation, Term
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.timers import Timers

Jobs = Mapping[JobId, Job]
Key = TypeVar("Key")
LARGEST_ARRAY = 100_000  # tasks


@dataclass(slots=True)
class ArrayGate:
    """An array with a limit of concurrent tasks: the tasks with a place, and the next ones."""

    limit: int = 0
    inside: set[JobId] = field(default_factory=set)
    next: list[JobId] = field(default_factory=list)  # a heap; stale entries are skipped


@dataclass(slots=True)
class Tally:
    """The remaining tasks of an array or group on which other jobs depend."""

    unended: set[JobId] = field(default_factory=set)
    unstarted: set[JobId] = field(default_factory=set)
    ill: bool = False  # a task has failed that fails the array
    well: bool = False  # a member has completed, and with it the group
    whole: bool = False  # tasks that have left memory are in it, too

    @property
    def failed(self) -> bool:
        """Whether it failed as a whole. Members that a successful group stops do not count."""
        return self.ill and not self.well

    @property
    def stage(self) -> tuple[bool, bool, bool]:
        """The facts on which other jobs depend."""
        return not self.unstarted, not self.unended, self.failed


class Namesakes:
    """Living jobs of one user with one name; the oldest of thousands costs log(n) to find."""

    __slots__ = ("_heap", "_ids")

    def __init__(self) -> None:
        self._ids = set[JobId]()
        self._heap: list[JobId] = []  # with some that have left

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, job_id: JobId) -> None:
        if job_id not in self._ids:
            self._ids.add(job_id)
            heappush(self._heap, job_id)

    def leave(self, job_id: JobId) -> bool:
        """Whether it was there."""
        was_here = job_id in self._ids
        self._ids.discard(job_id)
        return was_here

    def oldest(self, jobs: Jobs) -> JobId | None:
        """The lowest id of those that are in memory."""
        while self._heap and (self._heap[0] not in self._ids or self._heap[0] not in jobs):
            self._ids.discard(heappop(self._heap))
        return self._heap[0] if self._heap else None


@dataclass(slots=True)
class Gates:
    """The indexes that are read when a job changes; empty without blocked jobs."""

    begins: Timers[JobId] = field(default_factory=Timers)
    dependents: dict[JobId, dict[JobId, None]] = field(default_factory=dict)  # of a job or an array
    singletons: dict[str, dict[str, dict[JobId, None]]] = field(default_factory=dict)
    """The blocked ones, by user and name."""
    namesakes: dict[str, dict[str, Namesakes]] = field(default_factory=dict)
    """By user and name: all living jobs of each user with a blocked singleton."""
    arrays: dict[JobId, ArrayGate] = field(default_factory=dict)
    tallies: dict[JobId, Tally] = field(default_factory=dict)
    stirred: dict[JobId, None] = field(default_factory=dict)  # changed since `settle`
    _stages: dict[JobId, tuple[bool, bool]] = field(default_factory=dict)  # as last told

    def moved(self, job_ids: Iterable[JobId | None]) -> None:
        """Have these changed jobs judged in this turn, if any job may depend on them."""
        if self.dependents or self.singletons or self.arrays:
            self.stirred.update((job_id, None) for job_id in job_ids if job_id is not None)

    def track(self, jobs: Jobs, job: Job, now_s: float) -> None:
        """Enter a job that has not ended into the indexes; the next turn judges it."""
        if over(job):
            return
        if job.user in self.namesakes:
            self._enter_namesakes(job)
        if job.array is not None and job.array.concurrent:
            gate = self.arrays.setdefault(job.array.array_id, ArrayGate(job.array.concurrent))
            if not job.ended:  # what has ended keeps the limit of its time
                gate.limit = job.array.concurrent
            if holds_place(job) and job.blocked is None:
                gate.inside.add(job.job_id)
            if (
                job.blocked is Block.ARRAY_LIMIT
                and job.depends is None
                and job.begin_time_s is None
            ):
                self._queue_up(gate, job)
                return
            self.stirred[job.job_id] = None
        if job.live_attempt is not None:
            return
        if job.begin_time_s is not None and job.begin_time_s > now_s:
            self.begins.set(job.job_id, job.begin_time_s)
        self._track_terms(jobs, job)
        if job.blocked is Block.BACKOFF:
            self.wait_for_retry(job)
        if job.blocked is not None:
            self.stirred[job.job_id] = None

    def _queue_up(self, gate: ArrayGate, job: Job) -> None:
        """Add a task that waits for a place; judging the first one fills all places."""
        if not gate.next:
            self.stirred[job.job_id] = None
        heappush(gate.next, job.job_id)

    def _track_terms(self, jobs: Jobs, job: Job) -> None:
        for term in job.depends.terms if job.depends is not None else ():
            if term.relation is Relation.SINGLETON and term.met is None:
                self._track_singleton(jobs, job)
            elif term.met is None:
                self.dependents.setdefault(term.target, {})[job.job_id] = None
                if term.array and term.target not in self.tallies:
                    self.tallies[term.target] = tally_of(tasks_of(jobs, term.target))

    def wait_for_retry(self, job: Job) -> None:
        """Have a job judged again at the end of its back-off."""
        if job.retry_time_s is not None:
            self.begins.set(job.job_id, job.retry_time_s)

    def untrack(self, job: Job) -> None:
        """Drop a job that is not blocked any more (it may keep its place in its array)."""
        self.begins.clear(job.job_id)
        for term in job.depends.terms if job.depends is not None else ():
            if term.relation is Relation.SINGLETON:
                names = self.singletons.get(job.user, {})
                if _drop(names, job.name, job.job_id) and not names:
                    del self.singletons[job.user], self.namesakes[job.user]
            elif _drop(self.dependents, term.target, job.job_id):
                self.tallies.pop(term.target, None)
                self._stages.pop(term.target, None)

    def leave_array(self, job: Job) -> None:
        """Free the job's place in its array, if it has one."""
        gate = self.gate_of(job)
        if gate is not None:
            gate.inside.discard(job.job_id)

    def gate_of(self, job: Job) -> ArrayGate | None:
        """The gate of the job's array; None: it has no limit, or there is no array."""
        return None if job.array is None else self.arrays.get(job.array.array_id)

    def leave_namesakes(self, job: Job) -> None:
        """The job may get another name: have the jobs judged that wait for its present name."""
        if self._left_namesakes(job):
            self.stirred.update((each, None) for each in self._blocked_by_name(job))

    def learn(self, jobs: Jobs, job: Job) -> list[JobId]:
        """Count a changed job, and return the jobs that depend on what has changed."""
        told: list[JobId] = []
        if over(job):
            self.untrack(job)  # it does not wait behind itself
        stage = (_has_started(job), over(job))
        if job.job_id in self.dependents and self._stages.get(job.job_id, (False, False)) != stage:
            self._stages[job.job_id] = stage
            told += self.dependents[job.job_id]
        if job.array is not None and self._array_told(job, job.array.array_id):
            told += self.dependents.get(job.array.array_id, ())
        if over(job) and job.user in self.namesakes:
            self._left_namesakes(job)
            told += self._next_singletons(jobs, job)
        return told

    def _array_told(self, task: Job, array_id: JobId) -> bool:
        """Count a task; returns whether its array as a whole has changed."""
        tally = self.tallies.get(array_id)
        if tally is None:
            return False
        before = tally.stage
        _count(tally, task)
        return tally.stage != before

    def resolved(self, jobs: Jobs, job: Job, depends: Dependency, now_s: float) -> Dependency:
        """The dependency with its terms as they are met now."""
        terms = tuple(
            term if term.met is not None else self._resolved(jobs, job, term, now_s)
            for term in depends.terms
        )
        return depends if terms == depends.terms else depends._replace(terms=terms)

    def _resolved(self, jobs: Jobs, job: Job, term: Term, now_s: float) -> Term:
        if term.due_s is None:
            met = self._met(jobs, job, term)
            if not (met and term.delay_s):
                return term._replace(met=met)
            starts = (started_s(each) for each in _targets(jobs, term))
            term = term._replace(due_s=max(starts, default=now_s) + term.delay_s)
        return after_delay(term, now_s)

    def look_later(self, job: Job, depends: Dependency | None, now_s: float) -> None:
        """Have a job judged again at the end of its first delay, or at its begin time."""
        delays = (term.due_s for term in depends.terms if term.met is None) if depends else ()
        instants = [due_s for due_s in (*delays, job.begin_time_s) if due_s and due_s > now_s]
        if instants:
            self.begins.set(job.job_id, min(instants))

    def _met(self, jobs: Jobs, job: Job, term: Term) -> bool | None:
        if term.relation is Relation.SINGLETON:
            return None if self._has_elder(jobs, job) else True
        if term.array:
            return of_array(
                term.relation,
                self.tallies.get(term.target) or tally_of(tasks_of(jobs, term.target)),
            )
        other = jobs.get(term.target)
        # A job that is not here ended long ago, and was judged when the dependency was accepted.
        return term.relation not in _WELL if other is None else of_job(term.relation, other)

    def _track_singleton(self, jobs: Jobs, job: Job) -> None:
        """One look at all jobs is for all names of a user: thousands may come in one call."""
        self.singletons.setdefault(job.user, {}).setdefault(job.name, {})[job.job_id] = None
        if job.user not in self.namesakes:
            self.namesakes[job.user] = {}
            for other in jobs.values():
                if other.user == job.user and not over(other):
                    self._enter_namesakes(other)

    def _enter_namesakes(self, job: Job) -> None:
        self.namesakes[job.user].setdefault(job.name, Namesakes()).add(job.job_id)

    def _left_namesakes(self, job: Job) -> bool:
        """Whether the job was there, and has left now."""
        names = self.namesakes.get(job.user, {})
        if job.name not in names or not names[job.name].leave(job.job_id):
            return False
        if not names[job.name]:
            del names[job.name]
        return True

    def _blocked_by_name(self, job: Job) -> Mapping[JobId, None]:
        """The blocked singletons of the job's user and name."""
        return self.singletons.get(job.user, {}).get(job.name, {})

    def _next_singletons(self, jobs: Jobs, job: Job) -> list[JobId]:
        """Of those that wait only the oldest can be next, and the tasks of its array with it."""
        blocked = self._blocked_by_name(job)
        if not blocked:
            return []
        oldest = jobs[min(blocked)]
        if oldest.array is None:
            return [oldest.job_id]
        return [job_id for job_id in blocked if jobs[job_id].array == oldest.array]

    def _has_elder(self, jobs: Jobs, job: Job) -> bool:
        """Whether an earlier job of the same name lives. The tasks of its own array do not count:
        they have the ids behind the array's.
        """
        namesakes = self.namesakes.get(job.user, {}).get(job.name)
        oldest = None if namesakes is None else namesakes.oldest(jobs)
        first = job.job_id if job.array is None else job.array.array_id
        return oldest is not None and oldest < first


def over(job: Job) -> bool:
    """Nothing of it lives any more."""
    return job.ended and job.live_attempt is None


def holds_place(job: Job) -> bool:
    """Whether a task that was let in counts against its array's limit."""
    return not over(job) and not (job.state is JobState.HELD and job.live_attempt is None)


def build(jobs: Jobs, now_s: float) -> Gates:
    """The gates of a master that has just loaded its jobs."""
    gates = Gates()
    for job in jobs.values():
        if job.array is not None or job.depends is not None or job.begin_time_s is not None:
            gates.track(jobs, job, now_s)
        if job.blocked is Block.BACKOFF:
            gates.wait_for_retry(job)
    return gates


# --- helpers, in order of use ---------------------------------------------------------------------


def tasks_of(jobs: Jobs, array_id: JobId) -> Iterator[Job]:
    """The tasks of an array that are in memory. Other tasks ended long ago, and count as successes.
    The consequences of a failure were decided and stored when it happened.
    """
    number, last = array_id + 1, array_id + LARGEST_ARRAY
    while number <= last:
        job = jobs.get(JobId(number))
        if job is not None:
            if job.array is None or job.array.array_id != array_id:
                return
            last = array_id + job.array.tasks
            yield job
        number += 1


def tally_of(tasks: Iterable[Job], *, whole: bool = False) -> Tally:
    """A tally of these tasks; `whole`: they are all of them."""
    tally = Tally(whole=whole)
    for task in tasks:
        tally.unended.add(task.job_id)
        tally.unstarted.add(task.job_id)
        _count(tally, task)
    return tally


def _count(tally: Tally, task: Job) -> None:
    if over(task):
        tally.unended.discard(task.job_id)
        group = task.group
        ends = MemberEnds.EACH if group is None else group.member(task.array_index)[0].ends
        if task.state is not JobState.COMPLETED:
            tally.ill = tally.ill or ends is not MemberEnds.ALONE
        elif ends is MemberEnds.ALL:
            tally.well = True
    if _has_started(task):
        tally.unstarted.discard(task.job_id)


def _has_started(job: Job) -> bool:
    return job.first_start_time_s is not None or over(job)


def _targets(jobs: Jobs, term: Term) -> Iterator[Job]:
    """The jobs of a term that are in memory."""
    if term.array:
        yield from tasks_of(jobs, term.target)
    elif (job := jobs.get(term.target)) is not None:
        yield job


def started_s(job: Job) -> float:
    """Its first start, or its end if it never started."""
    return job.first_start_time_s or job.end_time_s or 0.0


def after_delay(term: Term, now_s: float) -> Term:
    """A term with a running delay: it is met at the end of the delay."""
    over_now = term.due_s is None or term.due_s <= now_s
    return term._replace(met=True if over_now else None)


_WELL = (Relation.AFTEROK, Relation.AFTERCORR)


def of_array(relation: Relation, tally: Tally) -> bool | None:
    """Whether an array meets the relation. None: not decided yet; False: it never will."""
    ended = not tally.unended
    match relation:
        case Relation.AFTER:
            return True if not tally.unstarted else None
        case Relation.AFTEROK | Relation.AFTERCORR:
            return False if tally.failed else True if ended else None
        case Relation.AFTERNOTOK:
            return tally.failed if ended else None
        case _:
            return True if ended else None


def of_job(relation: Relation, job: Job) -> bool | None:
    """The same of one job."""
    if relation is Relation.AFTER:
        return True if _has_started(job) else None
    if not over(job):
        return None
    well = job.state is JobState.COMPLETED
    if relation in _WELL:
        return well
    return not well if relation is Relation.AFTERNOTOK else True


def _drop(index: dict[Key, dict[JobId, None]], key: Key, job_id: JobId) -> bool:
    """Remove an entry; returns whether it was the last one under its key."""
    entries = index.get(key)
    if entries is None:
        return False
    entries.pop(job_id, None)
    if not entries:
        del index[key]
    return not entries
