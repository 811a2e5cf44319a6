"""How long each job has waited for what: `dlq why` tells it beside each reason.

Once a second it looks at waiting jobs, a bounded number of them, in turn. A reason of the last look
counts until this one. A look that finds the same reasons as before changes nothing. A start, an end
and a requeue are noted in their own turn. When the master restarts, rows exist for starts and ends,
and for other reasons that came more than a few minutes ago. The reasons of the last row count until
the new master's first look. Agents and a silent line have no part in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.values import Alike, changer
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.store.tables.tenants import Spent, Waited

AT_ONCE: Final = 500  # jobs that are looked at in one turn
WRITTEN_EVERY_S: Final = 300.0
RUNS: Final = "running"  # in place of a reason: it holds GPUs
UNSEEN: Final = "not_looked_at"  # likewise: it has just come to wait

# Queue, main reason of the last look, GPUs.
_Part = tuple[str, str, int]


class _Wait(NamedTuple):
    """All that is known of one job, or of several that came and were looked at together.

    `part`: of the GPUs for which jobs wait; None: it holds some, or has ended. `since_s`: nothing
    else than `now` has held since then; None: nobody has looked at it. `spent`: until then.
    `due_s`: its row is written then; infinite: the written one says the same.
    """

    part: _Part | None
    since_s: float | None = None
    now: tuple[str, ...] = ()
    spent: tuple[Spent, ...] = ()
    due_s: float = inf


_changed = changer(_Wait)


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

    def anew(self, job_ids: Iterable[JobId]) -> None:
        """These alone, in this order."""
        self._places = deque(job_ids)
        self._empty.clear()

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
        # The GPUs for which jobs wait, by queue and by the main reason of the last look.
        self.pending: Counter[tuple[str, str]] = Counter()
        self._known = {row.job_id: _Wait(None, row.at_s, row.now, row.spent) for row in loaded}
        self._line = _Line()  # of those that wait
        self._unwritten: dict[JobId, None] = {}  # their rows are written in this turn
        self._kinds: Alike[tuple[str, ...]] = Alike()
        self._parts: Alike[_Part] = Alike()
        self._waits: Alike[_Wait] = Alike()
        self.touched(jobs)

    def touched(self, jobs: Iterable[Job]) -> None:
        """These have other values; jobs that have come to wait are looked at from here on. The
        tasks of an array share their request, so that a thousand of them cost few calls.
        """
        came: list[JobId] = []
        known, request, fresh = self._known, None, _Wait(None)
        for job in jobs:
            if job.ended or job.live_attempt is not None:
                self._leave(job.job_id)
                continue
            before = known.get(job.job_id)
            if before is not None and before.since_s is not None:
                if before.part is None:
                    came.append(job.job_id)
                self._place(job, before)
                continue
            if job.request is not request or fresh.part is None or job.queue != fresh.part[0]:
                request = job.request
                part = self._parts.one((job.queue, UNSEEN, request.real_gpus))
                fresh = self._waits.one(_Wait(part))
            if before is fresh:
                continue
            if before is None:
                came.append(job.job_id)
            else:
                self._count(before.part, -1)
            known[job.job_id] = fresh
            self._count(fresh.part, 1)
        self._line.join(came)

    def renew(self, job_id: JobId, job: Job | None, row: Waited | None) -> None:
        """Know of it what a master knows that has just loaded its job and its row, whatever was
        known before. None: there is none.
        """
        self.forget(job_id)
        if row is not None:
            self._known[job_id] = _Wait(None, row.at_s, row.now, row.spent)
        if job is not None:
            self.touched((job,))

    def line_up(self, jobs: Iterable[Job]) -> None:
        """Look at all jobs that wait in this order."""
        known, waits = self._known, []
        for job in jobs:
            found = known.get(job.job_id)
            if found is not None and found.part is not None:
                waits.append(job.job_id)
        self._line.anew(waits)

    def moved(self, job: Job, now_s: float) -> None:
        """Something has happened to the job: whether it holds GPUs may be otherwise."""
        known = self._known.get(job.job_id)
        if known is None or known.since_s is None:
            return
        runs = job.live_attempt is not None
        if job.ended or runs is not (known.now == (RUNS,)):
            now = (RUNS,) if runs and not job.ended else ()
            self._known[job.job_id] = _from_here(known, now, now_s, known.due_s)
            self._unwritten[job.job_id] = None

    def look(
        self, jobs: Mapping[JobId, Job], find: ReasonSummary, now_s: float, since_s: float
    ) -> None:
        """Some of the waiting jobs, the longest unseen first. `since_s`: earlier times are unknown
        for jobs without a look so far. Its cost does not grow with the queue.
        """
        earliest_s, due_s = min(since_s, now_s), now_s + WRITTEN_EVERY_S
        for job_id in self._line.next(AT_ONCE):
            job = jobs[job_id]
            if job.live_attempt is not None or job.ended:  # it has moved in this turn
                continue
            kinds = self._kinds.one(tuple([kind.word for kind in find.kinds(job)]))
            known = self._known[job_id]
            if not kinds or known.now != kinds:
                known = self._found(job, known, kinds, now_s, earliest_s, due_s)
            if now_s >= known.due_s:
                self._unwritten[job_id] = None

    def rows(self, now_s: float) -> list[Waited]:
        """The rows to write in this turn."""
        found = []
        for job_id in self._unwritten:
            known = self._known[job_id]
            if known.since_s is not None:
                found.append(Waited(job_id, known.spent, known.since_s, known.now))
                self._known[job_id] = self._waits.one(_changed(known, {"due_s": inf}))
        self._unwritten.clear()
        return found

    def told(self, job_id: JobId, now_s: float) -> Waited | None:
        """The waiting times of a job, up to now; None: nothing."""
        known = self._known.get(job_id)
        if known is None or known.since_s is None:
            return None
        return settled(Waited(job_id, known.spent, known.since_s, known.now), now_s)

    def forget(self, job_id: JobId) -> None:
        """Its row is all that is left of it."""
        self._leave(job_id)
        self._known.pop(job_id, None)
        self._unwritten.pop(job_id, None)

    def _leave(self, job_id: JobId) -> None:
        """It waits no more, or did not wait."""
        known = self._known.get(job_id)
        if known is None or known.part is None:
            return
        self._line.leave(job_id)
        self._count(known.part, -1)
        if known.since_s is None:
            del self._known[job_id]
        else:
            self._known[job_id] = _changed(known, {"part": None})

    def _found(
        self,
        job: Job,
        known: _Wait,
        kinds: tuple[str, ...],
        now_s: float,
        earliest_s: float,
        due_s: float,
    ) -> _Wait:
        """Other reasons than at the last look, or the first ones."""
        if known.since_s is None:
            began_s = max(_began_s(job, now_s), earliest_s)
            known = _changed(known, {"since_s": began_s, "now": kinds})
        elif not known.now:
            known = _changed(known, {"now": kinds})
        due_s = min(known.due_s, due_s)
        same = known.now == kinds and bool(kinds)
        known = (
            _changed(known, {"due_s": due_s}) if same else _from_here(known, kinds, now_s, due_s)
        )
        return self._place(job, known)

    def _place(self, job: Job, known: _Wait) -> _Wait:
        """It waits, with these reasons."""
        code = known.now[0].partition(" ")[0] if known.now and known.now[0] != RUNS else UNSEEN
        before = self._known[job.job_id]
        part = self._parts.one((job.queue, code, job.request.real_gpus))
        if part != before.part:
            self._count(before.part, -1)
            self._count(part, 1)
        found = self._known[job.job_id] = self._waits.one(_changed(known, {"part": part}))
        return found

    def _count(self, part: _Part | None, times: int) -> None:
        if part is not None:
            self.pending[part[:2]] += times * part[2]


def _began_s(job: Job, now_s: float) -> float:
    """When the wait of a job began that nobody has looked at yet: one that started at once was
    never looked at.
    """
    if job.queued_since_s is not None:
        return job.queued_since_s
    return now_s if job.attempts else job.submit_time_s


def _from_here(known: _Wait, now: tuple[str, ...], now_s: float, due_s: float) -> _Wait:
    """The same up to now, where something else begins to hold."""
    assert known.since_s is not None
    until = settled(Waited(JobId(0), known.spent, known.since_s, known.now), now_s)
    return _Wait(known.part, until.at_s, now, until.spent, due_s)


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
