"""How long each job has waited for what: `dlq why` tells it beside each reason.

Once a second it looks at waiting jobs, a bounded number of them, in turn. A reason of the last look
counts until this one. A start, an end and a requeue are noted in their own turn. When the master
restarts, rows exist for starts and ends, and for every few minutes in between. The reasons of the
last row count until the new master's first look. Agents and a silent line have no part in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.values import Alike
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.store.tables.tenants import Spent, Waited

AT_ONCE: Final = 500  # jobs that are looked at in one turn
WRITTEN_EVERY_S: Final = 300.0
RUNS: Final = "running"  # in place of a reason: it holds GPUs
UNSEEN: Final = "not_looked_at"  # likewise: it has just come to wait


class PendingGpus:
    """The GPUs for which jobs wait, by queue and by the main reason of the last look."""

    def __init__(self) -> None:
        """Of no jobs."""
        self.sums: Counter[tuple[str, str]] = Counter()
        self._parts: dict[JobId, tuple[str, str, int]] = {}
        self._alike: Alike[tuple[str, str, int]] = Alike()

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._parts

    def put(self, jobs: Iterable[Job], code_of: Mapping[JobId, str]) -> list[JobId]:
        """They wait for these reasons; jobs without a code have just come. Return those that did
        not wait before. The tasks of an array share their request, so that a thousand of them cost
        few calls.
        """
        came: list[JobId] = []
        request, part = None, ("", "", 0)
        for job in jobs:
            code = code_of.get(job.job_id, UNSEEN)
            if job.request is not request or part[:2] != (job.queue, code):
                request = job.request
                part = self._alike.one((job.queue, code, request.real_gpus))
            before = self._parts.get(job.job_id)
            if before is part:
                continue
            if before is None:
                came.append(job.job_id)
            else:
                self.sums[before[:2]] -= before[2]
            self._parts[job.job_id] = part
            self.sums[part[:2]] += part[2]
        return came

    def drop(self, job_id: JobId) -> None:
        """It does not wait, or not any more."""
        part = self._parts.pop(job_id, None)
        if part is not None:
            queue, code, gpus = part
            self.sums[queue, code] -= gpus


class _Line:
    """Jobs in the order in which they are looked at, at 8 bytes each: most masters hold thousands.

    The place of a job that leaves stays empty until it comes to the head. One that comes back
    before has it again.
    """

    def __init__(self) -> None:
        self._places: deque[JobId] = deque()
        self._empty: set[JobId] = set()

    def join(self, job_ids: Collection[JobId]) -> None:
        """They come; none of them stands in the line."""
        empty = self._empty
        self._places += [job_id for job_id in job_ids if job_id not in empty]
        empty.difference_update(job_ids)

    def leave(self, job_id: JobId) -> None:
        """It goes; it stands in the line."""
        self._empty.add(job_id)

    def next(self, most: int) -> Iterator[JobId]:
        """The first ones, which stand behind all others then."""
        places = self._places
        for _ in range(len(places)):
            job_id = places.popleft()
            if job_id in self._empty:
                self._empty.discard(job_id)
                continue
            places.append(job_id)
            yield job_id
            most -= 1
            if not most:
                return


class Waits:
    """The waiting times of every job that has not ended. Touched by the loop alone."""

    def __init__(self, loaded: Iterable[Waited] = (), jobs: Iterable[Job] = ()) -> None:
        self.pending = PendingGpus()
        self._known = {row.job_id: row for row in loaded}
        self._written_s: dict[JobId, float] = {}
        self._line = _Line()  # of those that wait
        self._changed: dict[JobId, None] = {}
        self._kinds: Alike[tuple[str, ...]] = Alike()
        self.touched(jobs)

    def touched(self, jobs: Iterable[Job]) -> None:
        """These have other values; jobs that have come to wait are looked at from here on."""
        wait: list[Job] = []
        codes: dict[JobId, str] = {}
        for job in jobs:
            if job.ended or job.live_attempt is not None:
                self._leave(job.job_id)
            else:
                wait.append(job)
                if job.job_id in self._known:
                    codes[job.job_id] = self._main(job.job_id)
        self._line.join(self.pending.put(wait, codes))

    def moved(self, job: Job, now_s: float) -> None:
        """Something has happened to the job: whether it holds GPUs may be otherwise."""
        known = self._known.get(job.job_id)
        if known is None:
            return
        if job.ended:
            self._put(settled(known, now_s)._replace(now=()))
        elif (job.live_attempt is not None) is not (known.now == (RUNS,)):
            now = (RUNS,) if job.live_attempt is not None else ()
            self._put(settled(known, now_s)._replace(now=now))

    def look(
        self, jobs: Mapping[JobId, Job], find: ReasonSummary, now_s: float, since_s: float
    ) -> None:
        """Some of the waiting jobs, the longest unseen first. `since_s`: earlier times are unknown
        for jobs without a look so far. Its cost does not grow with the queue.
        """
        for job_id in self._line.next(AT_ONCE):
            job = jobs[job_id]
            if job.live_attempt is None and not job.ended:  # it has moved in this turn
                self._look_at(job, find, now_s, since_s)

    def rows(self, now_s: float) -> list[Waited]:
        """The rows to write in this turn."""
        found = []
        for job_id in self._changed:
            row = self._known[job_id]
            found.append(row)
            self._written_s[job_id] = now_s
        self._changed.clear()
        return found

    def told(self, job_id: JobId, now_s: float) -> Waited | None:
        """The waiting times of a job, up to now; None: nothing."""
        known = self._known.get(job_id)
        return None if known is None else settled(known, now_s)

    def forget(self, job_id: JobId) -> None:
        """Its row is all that is left of it."""
        self._leave(job_id)
        self._known.pop(job_id, None)
        self._written_s.pop(job_id, None)

    def _leave(self, job_id: JobId) -> None:
        if job_id in self.pending:
            self._line.leave(job_id)
            self.pending.drop(job_id)

    def _main(self, job_id: JobId) -> str:
        """The code of the main reason at the last look; the subject of a reason is left out."""
        known = self._known.get(job_id)
        if known is None or not known.now or known.now[0] == RUNS:
            return UNSEEN
        return known.now[0].partition(" ")[0]

    def _look_at(self, job: Job, find: ReasonSummary, now_s: float, since_s: float) -> None:
        kinds = self._kinds.one(tuple([kind.word for kind in find.kinds(job)]))
        known = self._known.get(job.job_id)
        if known is None:
            known = Waited(job.job_id, (), max(_began_s(job, now_s), min(since_s, now_s)))
        if not known.now:
            known = known._replace(now=kinds)
        self._known[job.job_id] = settled(known, now_s)._replace(now=kinds)
        self.pending.put((job,), {job.job_id: self._main(job.job_id)})
        if now_s >= self._written_s.setdefault(job.job_id, now_s) + WRITTEN_EVERY_S:
            self._changed[job.job_id] = None

    def _put(self, row: Waited) -> None:
        self._known[row.job_id] = row
        self._changed[row.job_id] = None


def _began_s(job: Job, now_s: float) -> float:
    """When the wait of a job began that nobody has looked at yet: one that started at once was
    never looked at.
    """
    if job.queued_since_s is not None:
        return job.queued_since_s
    return now_s if job.attempts else job.submit_time_s


def settled(row: Waited, now_s: float) -> Waited:
    """The same up to now: the last reasons count until now."""
    passed_s = now_s - row.at_s
    if not row.now or passed_s <= 0.0:
        return row._replace(at_s=max(row.at_s, now_s))
    spent = {one.code: one for one in row.spent}
    for place, code in enumerate(row.now):
        _, held_s, main_s = spent.get(code, Spent(code, 0.0, 0.0))
        now_held_s = held_s + passed_s
        if place == 0:  # one number serves both where no other reason was the main one before
            main_s = now_held_s if main_s == held_s else main_s + passed_s
        spent[code] = Spent(code, now_held_s, main_s)
    return row._replace(spent=tuple(spent.values()), at_s=now_s)
