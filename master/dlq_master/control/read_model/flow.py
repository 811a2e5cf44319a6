"""Counters of what a master has published since its start: waits, runs, promises, saves, losses.

Each counts in the commit in which its event is published, so a scrape looks at no job. All of them
begin at 0 with every start of the master. When an agent restarts, or its line is silent, nothing
counts until the master hears of it and commits it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import isfinite

from dlq_master.control.loop.histogram import SAVES_S, SHARES, SPANS_S, Histograms
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.model.usage.accounting import UseClass
from dlq_master.store.batch import Batch
from dlq_master.store.stored_tables import FORESEEN, MACHINES
from dlq_master.store.tables.tenants import Foreseen

# The sizes of jobs in the histogram of waits: the most GPUs, and the words.
_SIZES = ((0, "0"), (1, "1"), (4, "2-4"), (8, "5-8"), (16, "9-16"), (64, "17-64"))
_LARGEST = "65+"
_ENDS = {"promise_broken": "broken", "promise_overrun": "overrun", "promise_dropped": "dropped"}
_COUNTED = frozenset(
    {"job_displaced", "job_saved", "job_resumed", "promise_missed", "server_returned", *_ENDS}
)


class Flow:
    """Counters since the start of the master. Touched in the loop's thread only."""

    def __init__(self) -> None:
        """Of nothing."""
        self.waits = Histograms(SPANS_S, "class", "gpus_bucket", "queue")
        self.runs = Histograms(SPANS_S, "queue", "state")
        self.slack = Histograms(SPANS_S)  # of promises that were kept
        self.missed: Counter[str] = Counter()  # promises, by cause
        self.forecast_errors = Histograms(SPANS_S, "kind")
        self.displaced: Counter[str] = Counter()  # by rule
        self.lost_gpu_s: defaultdict[str, float] = defaultdict(float)  # by cause
        self.saves = Histograms(SAVES_S)
        self.resumes = Histograms(SAVES_S)
        self.grace = Histograms(SHARES)
        self.reclaims = Histograms(SPANS_S)
        self.costs: defaultdict[str, float] = defaultdict(float)  # of machines that went, by pool
        self._late: set[JobId] = set()  # promises that were missed, of jobs that live

    def publish(
        self,
        batch: Batch,
        jobs: Mapping[JobId, Job],
        attempts: Mapping[AttemptKey, Attempt],
        nodes: Mapping[NodeId, Node],
        machines: Mapping[str, Machine],
    ) -> None:
        """Count what this batch changes; the mappings are as they were before it."""
        for event in batch.events:
            if event.kind in _COUNTED:
                self._happened(event, nodes)
        # A turn with another policy writes jobs and attempts twice: the last value counts.
        for job in {job.job_id: job for job in batch.jobs}.values():
            before = jobs.get(job.job_id)
            if before is not None:
                self._job(before, job)
        for attempt in {attempt.key: attempt for attempt in batch.attempts}.values():
            if not attempt.live and attempt.key in attempts:
                self._attempt_ended(attempt)
        for row in batch.values(FORESEEN):
            self._compared(row)
        for machine in batch.values(MACHINES):
            known = machines.get(machine.request_id)
            if machine.end_s is not None and known is not None and known.end_s is None:
                self.costs[machine.pool] += machine.cost(machine.end_s)

    def _happened(self, event: JournalEvent, nodes: Mapping[NodeId, Node]) -> None:
        kind, data = event.kind, event.data
        if kind == "job_displaced":
            self.displaced[str(data.get("rule") or "other")] += 1
        elif kind == "job_saved":
            self._observe(self.saves, data.get("save_s"))
        elif kind == "job_resumed":
            self._observe(self.resumes, data.get("resume_s"))
        elif kind == "promise_missed" and event.job_id is not None:
            self.missed["late"] += 1
            self._late.add(event.job_id)
        elif kind in _ENDS and event.job_id not in self._late:
            self.missed[_ENDS[kind]] += 1
        elif kind == "server_returned" and event.node_id is not None:
            node = nodes.get(event.node_id)
            note = None if node is None else node.note(NodeFlag.RECLAIMED)
            if note is not None:
                self.reclaims.of().observe(event.time_s - note.since_s)

    @staticmethod
    def _observe(histograms: Histograms, value: object) -> None:
        if isinstance(value, int | float):
            histograms.of().observe(float(value))

    def _job(self, before: Job, job: Job) -> None:
        if before.first_start_time_s is None and job.first_start_time_s is not None:
            waits = self.waits.of(_class_of(job), _size_of(job), job.queue)
            waits.observe(job.queued_s, job.job_id, job.first_start_time_s)
        lost_gpu_s = job.lost_gpu_s - before.lost_gpu_s
        if lost_gpu_s > 0.0:
            cause = "resized" if job.end_reason is None else job.end_reason.value
            self.lost_gpu_s[cause] += lost_gpu_s
        if job.ended and not before.ended:
            self._ended(before, job)

    def _ended(self, before: Job, job: Job) -> None:
        self.runs.of(job.queue, job.state.value).observe(job.total_executed_s)
        self._late.discard(job.job_id)
        if before.promised is None or job.state is not JobState.COMPLETED:
            return
        left_s = due_s(before, before.promised) - (job.end_time_s or 0.0)
        if left_s >= 0.0:
            self.slack.of().observe(left_s)

    def _attempt_ended(self, attempt: Attempt) -> None:
        """How much of its grace it took to leave."""
        noticed_s, ended_s, grace_s = attempt.notice_time_s, attempt.ended_time_s, attempt.grace_s
        if noticed_s is not None and ended_s is not None and grace_s:
            self.grace.of().observe((ended_s - noticed_s) / grace_s)

    def _compared(self, row: Foreseen) -> None:
        """The first forecast of a job that has started now."""
        if row.started_s is None:
            return
        for kind, told_s in (("p10", row.low_s), ("likely", row.likely_s), ("p90", row.high_s)):
            if isfinite(told_s):
                self.forecast_errors.of(kind).observe(abs(row.started_s - told_s))


def _class_of(job: Job) -> str:
    """By what right it starts."""
    if job.band is Band.PROFILE:
        return UseClass.TRIAL.value
    if job.promised is not None:
        return UseClass.PROMISED.value
    return (UseClass.BORROWED if job.band is Band.BORROW else UseClass.BEST_EFFORT).value


def _size_of(job: Job) -> str:
    gpus = job.request.real_gpus
    return next((word for most, word in _SIZES if gpus <= most), _LARGEST)
