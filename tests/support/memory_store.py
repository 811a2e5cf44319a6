"""A store that forgets: rows in dictionaries, for tests.

It obeys the same contract as the SQLite store (tests/contract/test_store.py),
down to bodies. Its results have been encoded and decoded, so nothing survives here by reference
that would not survive a restart.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.person import Owner, belongs
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import Node
from dlq_master.model.usage.accounting import Account, Level, Used, summed
from dlq_master.model.usage.cost import Costs, Stay, costs
from dlq_master.store.batch import (
    ALL_ENDED,
    HORIZON,
    MOST_COMPLETED,
    MOST_RECORDINGS,
    TAUGHT,
    Batch,
    Intention,
    JournalCut,
    Loaded,
    MemoryWindow,
    PastJobs,
    StoredRequest,
)
from dlq_master.store.list_order import ListOrder, Rank, has_type, has_words
from dlq_master.store.stored_tables import (
    FORESEEN,
    GRANTS,
    HELD_GRANTS,
    LESSONS,
    MACHINES,
    NOTIFY_RULES,
    RESERVATIONS,
    REVOCATIONS,
    TABLES,
    TEAMS,
    TOKENS,
    USERS,
    WAITED,
)
from dlq_master.store.tables.accounts import LEVELS, Books, PoolRow, UseRow, books
from dlq_master.store.tables.codec import decode, encode
from dlq_master.store.tables.table import Table
from dlq_master.store.tables.tenants import Waited

T = TypeVar("T")


def _no_rows() -> dict[Table[Any, Any], dict[Any, str]]:
    return {table: {} for table in TABLES}


@dataclass(slots=True)
class _Rows:
    meta: dict[str, str] = field(default_factory=dict)
    jobs: dict[JobId, str] = field(default_factory=dict)
    specs: dict[JobId, bytes] = field(default_factory=dict)
    attempts: dict[AttemptKey, str] = field(default_factory=dict)
    nodes: dict[NodeId, str] = field(default_factory=dict)
    tables: dict[Table[Any, Any], dict[Any, str]] = field(default_factory=_no_rows)
    requests: dict[tuple[str, str], StoredRequest] = field(default_factory=dict)
    events: dict[int, JournalEvent] = field(default_factory=dict)
    outbox: dict[int, Intention] = field(default_factory=dict)
    recordings: dict[AttemptKey, str] = field(default_factory=dict)
    evidence: dict[tuple[AttemptKey, int], str] = field(default_factory=dict)
    uses: dict[Account, Used] = field(default_factory=dict)
    pool_uses: dict[tuple[int, str], Level] = field(default_factory=dict)
    stays: dict[tuple[str, AttemptKey], Stay] = field(default_factory=dict)
    audit_owed: dict[str, str] = field(default_factory=dict)


class MemoryStore:
    """Both halves of a store: commits batches, answers queries. Its knobs: `fail_with`,
    `commits`.
    """

    def __init__(self) -> None:
        self._rows = _Rows()
        self.commits = 0
        self.step_lists: dict[AttemptKey, float] = {}  # by the end of their jobs
        self.fail_with: BaseException | None = None  # every commit from now on raises this
        self._decode: Callable[..., Any] = decode
        self._onlooker: MemoryStore | None = None

    def onlooker(self) -> "MemoryStore":
        """The same rows for a reader that looks after every turn and changes none of them. It
        remembers the decoded value of each body, and shares it with nobody else.
        """
        if self._onlooker is None:
            self._onlooker = MemoryStore()
            self._onlooker._rows = self._rows
            self._onlooker._decode = lru_cache(maxsize=20_000)(decode)
        return self._onlooker

    def as_it_is(self) -> "MemoryStore":
        """A copy of the rows that a start reads, which changes no more."""
        here, copy = self._rows, MemoryStore()
        last = max(here.events, default=0)
        copy._rows = _Rows(
            meta=dict(here.meta),
            jobs=dict(here.jobs),
            attempts=dict(here.attempts),
            nodes=dict(here.nodes),
            tables={table: dict(bodies) for table, bodies in here.tables.items()},
            events={last: here.events[last]} if last else {},
            outbox=dict(here.outbox),
            recordings=dict(here.recordings),
            audit_owed=dict(here.audit_owed),
        )
        return copy

    def bodies(self, name: str) -> dict[Any, str]:
        """The stored bodies of a table, by the keys of their values."""
        rows = self._rows
        found: dict[str, dict[Any, str]] = {
            "jobs": cast("dict[Any, str]", rows.jobs),
            "attempts": cast("dict[Any, str]", rows.attempts),
            "nodes": cast("dict[Any, str]", rows.nodes),
            "recordings": cast("dict[Any, str]", rows.recordings),
        }
        found |= {table.name: bodies for table, bodies in rows.tables.items()}
        return found[name]

    async def commit(self, batch: Batch) -> None:
        """All of the batch or, when `fail_with` is set, nothing."""
        if self.fail_with is not None:
            raise self.fail_with
        self.write(batch)

    def write(self, batch: Batch) -> None:
        """`commit`, for callers without a loop. Raises KeyError for a row that exists."""
        rows = self._rows
        self._refuse_doubles(batch)
        rows.jobs |= {job.job_id: encode(job) for job in batch.jobs}
        rows.specs |= dict(batch.specs)
        rows.specs |= {JobId(-job_id): spec for job_id, spec in batch.changed_specs}
        rows.attempts |= {attempt.key: encode(attempt) for attempt in batch.attempts}
        rows.nodes |= {node.node_id: encode(node) for node in batch.nodes}
        _drop(rows.nodes, batch.forgotten_nodes)
        for table, changes in batch.changes.items():
            here = rows.tables[table]
            here |= {table.key_of(one): encode(one) for one in batch.values(table)}
            _drop(here, [key for key, one in changes.items() if one is None])
        rows.requests |= {(row.user, row.request_id): row for row in batch.requests}
        if (before_s := batch.forget_requests_before_s) is not None:
            _drop(rows.requests, [k for k, row in rows.requests.items() if row.time_s < before_s])
        rows.events |= {event.seq: replace(event, data=dict(event.data)) for event in batch.events}
        rows.outbox |= {row.sequence: row for row in batch.intentions}
        _drop(rows.outbox, batch.delivered)
        rows.recordings |= {row.key: encode(row) for row in batch.recordings}
        rows.evidence |= {(row.key, row.node_rank): encode(row) for row in batch.evidence}
        rows.uses = summed([*rows.uses.items(), *batch.uses, *batch.idle_uses])
        for day, pool, level in batch.pool_uses:
            rows.pool_uses[day, pool] = rows.pool_uses.get((day, pool), Level()) + level
        rows.stays |= {(one.request_id, one.key): one for one in batch.stays}
        for note_id, line in batch.audit_owed:
            rows.audit_owed.setdefault(note_id, line)
        rows.meta |= batch.meta
        self.commits += 1

    async def back_up(self) -> None:
        """There is nothing to copy."""

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None:
        """Drop these events; up to `horizon` the journal is not whole any more."""
        if self.fail_with is not None:
            raise self.fail_with
        _drop(self._rows.events, sequences)
        self._rows.meta[HORIZON] = str(horizon)

    async def drop_steps(self, keys: Sequence[AttemptKey]) -> None:
        """Drop these lists of steps; tests put them in."""
        _drop(self.step_lists, keys)

    async def steps_behind(self, ended_before_s: float, limit: int) -> Sequence[AttemptKey]:
        """Lists of steps of jobs that ended before this."""
        return [key for key, end_s in self.step_lists.items() if end_s < ended_before_s][:limit]

    def _refuse_doubles(self, batch: Batch) -> None:
        """A row that is written once and never changed may not be written again."""
        rows = self._rows
        doubles: list[object] = [job_id for job_id, _ in batch.specs if job_id in rows.specs]
        doubles += [row.sequence for row in batch.intentions if row.sequence in rows.outbox]
        doubles += [event.seq for event in batch.events if event.seq in rows.events]
        asked = [(row.user, row.request_id) for row in batch.requests]
        doubles += [key for key in asked if key in rows.requests]
        told = [(row.key, row.node_rank) for row in batch.evidence]
        doubles += [key for key in told if key in rows.evidence]
        if doubles:
            raise KeyError(f"written already: {doubles}")

    # --- the reader's half --------------------------------------------------------------------

    def close(self) -> None:
        """Nothing to give back."""

    def load(self, window: MemoryWindow = ALL_ENDED) -> Loaded:
        """Everything a starting master needs."""
        rows = self._rows
        last = max(rows.events, default=0)
        last_time_s = rows.events[last].time_s if last else 0.0
        attempts = tuple(
            attempt
            for attempt in self._decoded(rows.attempts, Attempt)
            if attempt.ended_time_s is None
        )
        jobs = self._decoded(rows.jobs, Job)
        from_s = last_time_s - window.kept_s
        newest = sorted(
            (job for job in jobs if job.end_time_s is not None and job.end_time_s >= from_s),
            key=lambda job: (job.end_time_s or 0.0, job.job_id),
            reverse=True,
        )[: window.most]
        complete_from_s = from_s
        if len(newest) == window.most:
            complete_from_s = (newest[-1].end_time_s or 0.0) if newest else math.inf
        kept = {job.job_id for job in newest} | {attempt.key.job_id for attempt in attempts}
        completed = sorted(
            (job for job in jobs if job.state is JobState.COMPLETED and job.job_id not in kept),
            key=lambda job: (job.end_time_s or 0.0, job.job_id),
        )
        return Loaded(
            meta=dict(rows.meta),
            jobs=tuple(job for job in jobs if job.end_time_s is None or job.job_id in kept),
            attempts=attempts,
            nodes=self._decoded(rows.nodes, Node),
            users=self._values(USERS),
            tokens=self._values(TOKENS),
            intentions=tuple(rows.outbox[sequence] for sequence in sorted(rows.outbox)),
            last_event=last,
            last_time_s=last_time_s,
            last_job=max(rows.jobs, default=0),
            complete_from_s=complete_from_s,
            completed=() if TAUGHT in rows.meta else tuple(completed[-MOST_COMPLETED:]),
            lessons=self._values(LESSONS),
            recordings=self._recordings()[-MOST_RECORDINGS:],
            teams=self._values(TEAMS),
            reservations=self._values(RESERVATIONS),
            notify_rules=self._values(NOTIFY_RULES),
            revocations=self._values(REVOCATIONS),
            grants=self._values(GRANTS),
            held_grants=self._values(HELD_GRANTS),
            waited=tuple(
                one
                for one in self._decoded(rows.tables[WAITED], Waited)
                if self._decode(rows.jobs[one.job_id], Job).end_time_s is None
            ),
            foreseen=self._values(FORESEEN),
            machines=self._machines(),
            audit_owed=tuple(rows.audit_owed.items()),
        )

    def job(self, job_id: JobId) -> Job | None:
        """One job, whether it has ended or not; None for an unknown one."""
        body = self._rows.jobs.get(job_id)
        return None if body is None else self._decode(body, Job)

    def waited(self, job_id: JobId) -> Waited | None:
        """How long a job has waited for what, as last written; None: nothing was."""
        body = self._rows.tables[WAITED].get(job_id)
        return None if body is None else self._decode(body, Waited)

    def owner(self, job_id: JobId) -> Owner | None:
        """Whose job it is; None for an unknown one."""
        job = self.job(job_id)
        return None if job is None else Owner(job.user, job.person, job.submit_time_s)

    async def past_jobs(self, wanted: PastJobs, after: int, limit: int) -> Sequence[Job]:
        """Ended jobs with an id above `after`, in the order of their ids; at most `limit`."""
        found = (job for job in self._decoded(self._rows.jobs, Job) if job.job_id > after)
        return [job for job in found if admits(wanted, job)][:limit]

    async def past_in_order(
        self, wanted: PastJobs, order: ListOrder, after: Rank | None, limit: int
    ) -> Sequence[Job]:
        """Ended jobs behind a place of this order; at most `limit`."""
        found = (job for job in self._decoded(self._rows.jobs, Job) if admits(wanted, job))
        return in_order(found, order, after, limit)

    async def past_count(self, wanted: PastJobs) -> int:
        """So many ended jobs."""
        return sum(admits(wanted, job) for job in self._decoded(self._rows.jobs, Job))

    async def books(self, first_day: int, last_day: int, now_s: float) -> Books:
        """The usage from the first day to the last, until now."""
        return self.books_of(first_day, last_day, now_s)

    def books_of(self, first_day: int, last_day: int, now_s: float) -> Books:
        """The result of `books`, for callers without a loop."""
        rows = self._rows
        stored = (
            [UseRow(account, spent) for account, spent in rows.uses.items()],
            [PoolRow(day, pool, level) for (day, pool), level in rows.pool_uses.items()],
            rows.meta.get(LEVELS),
        )
        living = [
            (attempt, self._decode(rows.jobs[attempt.key.job_id], Job))
            for attempt in self._decoded(rows.attempts, Attempt)
            if attempt.ended_time_s is None
        ]
        return books(stored, living, self._decoded(rows.nodes, Node), first_day, last_day, now_s)

    async def costs(self, first_day: int, last_day: int, now_s: float) -> Costs:
        """The costs of the days from the first to the last, until now."""
        return self.costs_of(first_day, last_day, now_s)

    def costs_of(self, first_day: int, last_day: int, now_s: float) -> Costs:
        """The result of `costs`, for callers without a loop."""
        rows = self._rows
        days = range(first_day, last_day + 1)
        machines, jobs = self._values(MACHINES), self._decoded(rows.jobs, Job)
        return costs(machines, rows.stays.values(), jobs, days, now_s)

    async def journal_cut(self, from_s: float, most: int) -> JournalCut:
        """The journal's events older than `from_s`, or beyond the newest `most`."""
        sequences = sorted(self._rows.events)
        by_age = [seq for seq in sequences[:-1] if self._rows.events[seq].time_s < from_s]
        by_count = sequences[:-1][: max(0, len(sequences) - most)]
        return JournalCut(max(by_age, default=0), max(by_count, default=0), from_s)

    async def journal_behind(self, cut: JournalCut, after: int, limit: int) -> Sequence[int]:
        """Sequences above `after` that the cut takes, in order; at most `limit`."""
        found = (seq for seq in sorted(self._rows.events) if after < seq <= cut.horizon)
        return [seq for seq in found if self._is_behind(seq, cut)][:limit]

    def _is_behind(self, sequence: int, cut: JournalCut) -> bool:
        job_id = self._rows.events[sequence].job_id
        job = None if job_id is None else self.job(job_id)
        if job is None:
            return True
        living = any(attempt.ended_time_s is None for attempt in self.attempts(job.job_id))
        if job.end_time_s is None or living:
            return False
        return sequence <= cut.by_count or job.end_time_s < cut.ended_from_s

    def spec(self, job_id: JobId) -> bytes | None:
        """The submitted spec; None for an unknown job."""
        return self._rows.specs.get(job_id)

    def attempts(self, job_id: JobId) -> tuple[Attempt, ...]:
        """All attempts of a job, oldest first."""
        keys = sorted(key for key in self._rows.attempts if key.job_id == job_id)
        return tuple(self._decode(self._rows.attempts[key], Attempt) for key in keys)

    def recordings(self, job_id: JobId) -> tuple[Recording, ...]:
        """All starts of a job whose traffic was to be recorded, oldest first."""
        found = (one for one in self._recordings() if one.key.job_id == job_id)
        return tuple(sorted(found, key=lambda one: one.key))

    def evidence(self, key: AttemptKey) -> tuple[Evidence, ...]:
        """The reports of the nodes of an attempt, in rank order."""
        rows = self._rows.evidence
        return tuple(
            self._decode(rows[place], Evidence) for place in sorted(rows) if place[0] == key
        )

    def _machines(self) -> tuple[Machine, ...]:
        found = self._values(MACHINES)
        kept = Fleet(found)
        return tuple(one for one in found if one.request_id in kept)

    def _recordings(self) -> tuple[Recording, ...]:
        found = self._decoded(self._rows.recordings, Recording)
        return tuple(sorted(found, key=lambda one: (one.order_time_s, one.key)))

    def request(self, user: str, request_id: str) -> StoredRequest | None:
        """An answered request of this user."""
        return self._rows.requests.get((user, request_id))

    def requests(self, user: str, request_ids: Sequence[str]) -> Sequence[StoredRequest]:
        """Those of these requests that have been answered."""
        found = (self.request(user, request_id) for request_id in request_ids)
        return [one for one in found if one is not None]

    def events(
        self, after: int, limit: int, job_id: JobId | None = None
    ) -> tuple[JournalEvent, ...]:
        """Events with a sequence above `after`, oldest first; of one job, or of all."""
        wanted = (
            self._rows.events[seq]
            for seq in sorted(self._rows.events)
            if seq > after and job_id in (None, self._rows.events[seq].job_id)
        )
        return tuple(event for event, _ in zip(wanted, range(limit), strict=False))

    def _values(self, table: Table[Any, T]) -> tuple[T, ...]:
        return self._decoded(self._rows.tables[table], table.kind)

    def _decoded(self, bodies: dict[Any, str], kind: type[T]) -> tuple[T, ...]:
        return tuple(self._decode(bodies[key], kind) for key in sorted(bodies))


def admits(wanted: PastJobs, job: Job) -> bool:
    """Whether this ended job is one of them."""
    return (
        job.end_time_s is not None
        and wanted.user in (None, job.user)
        and wanted.queue in ("", job.queue)
        and wanted.name in ("", job.name)
        and (not wanted.states or job.state.value in wanted.states)
        and wanted.spans(job.end_time_s)
        and wanted.team in ("", job.team)
        and (not wanted.gpu_type or has_type(wanted.gpu_type, job))
        and has_words(wanted.words, job)
        and (wanted.person is None or belongs(job, job.user, wanted.person, wanted.since_s))
    )


def in_order(jobs: Iterable[Job], order: ListOrder, after: Rank | None, limit: int) -> list[Job]:
    """The first of them behind a place of this order."""
    ranked = sorted(jobs, key=order.rank)
    return [job for job in ranked if after is None or order.rank(job) > after][:limit]


def _drop(rows: dict[Any, Any], keys: Iterable[Any]) -> None:
    for key in keys:
        rows.pop(key, None)
