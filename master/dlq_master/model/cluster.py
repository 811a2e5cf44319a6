"""The working state: frozen values in, indexes kept beside them, changes remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.attempt import ACTIVE, Attempt, AttemptState
from dlq_master.model.capacity import Capacity
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import Job, JobState
from dlq_master.model.lease import Terms
from dlq_master.model.node import Node
from dlq_master.model.order import (
    PROMOTED_BASE,
    STARTED_BASE,
    STARTED_END,
    WAITING_BASE,
    Ordering,
)
from dlq_master.model.running import Place, RunningIndex
from dlq_master.model.timers import Timers
from dlq_master.model.waiting import WaitingIndex


class Touched(NamedTuple):
    """Present values of everything that changed since the last look, in order of first change."""

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]
    nodes: tuple[Node, ...]


class Cluster:
    """One driver owns it and changes it only through `put_*`; each costs O(1) or O(log n).

    Values are replaced, never mutated, so a reader may keep them. Free GPUs, queue positions and
    timers are derived from the values: `model.validate` recomputes them all and compares.
    """

    def __init__(self, ordering: Ordering, terms: Terms) -> None:
        self.ordering = ordering
        self.terms = terms
        self.capacity = Capacity()
        self.waiting = WaitingIndex()
        self.running = RunningIndex()
        self.crossings = Timers()  # a job's service reaches its level's threshold
        self.promotions = Timers()  # a waiting job has starved
        self.pending: dict[JobId, None] = {}
        self.silent: dict[AttemptKey, None] = {}  # UNKNOWN attempts
        self.by_term: dict[float, dict[AttemptKey, None]] = {}  # active attempts by term end
        self.unsettled: dict[JobId, None] = {}  # demoted while running, not yet re-placed
        self._jobs: dict[JobId, Job] = {}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._touched_jobs: dict[JobId, None] = {}
        self._touched_attempts: dict[AttemptKey, None] = {}
        self._touched_nodes: dict[NodeId, None] = {}
        self._tail = WAITING_BASE
        self._head = WAITING_BASE
        self._started = STARTED_BASE
        self._promoted = PROMOTED_BASE

    @classmethod
    def load(
        cls,
        ordering: Ordering,
        terms: Terms,
        nodes: Iterable[Node] = (),
        jobs: Iterable[Job] = (),
        attempts: Iterable[Attempt] = (),
    ) -> Cluster:
        """The cluster as it was stored: live jobs and attempts suffice. Nothing is touched."""
        cluster = cls(ordering, terms)
        for node in nodes:
            cluster.put_node(node)
        for job in jobs:
            cluster._count_from(job.sequence)
            cluster.put_job(job)
        for attempt in attempts:
            cluster.put_attempt(attempt)
        cluster.take_touched()
        return cluster

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        return MappingProxyType(self._jobs)

    @property
    def attempts(self) -> Mapping[AttemptKey, Attempt]:
        """Live attempts, and ended ones until `forget_ended`."""
        return MappingProxyType(self._attempts)

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return MappingProxyType(self.capacity.nodes)

    def job(self, job_id: JobId) -> Job:
        return self._jobs[job_id]

    def attempt(self, key: AttemptKey) -> Attempt:
        return self._attempts[key]

    def live_attempt(self, job: Job) -> Attempt | None:
        """The job's live attempt, if it has one."""
        if job.live_attempt is None:
            return None
        return self._attempts.get(AttemptKey(job.job_id, job.live_attempt))

    def rank(self, job: Job) -> int:
        return self.ordering.rank(job.rank_base, job.level)

    def put_node(self, node: Node) -> None:
        self.capacity.put_node(node)
        self._touched_nodes[node.node_id] = None

    def drop_node(self, node_id: NodeId) -> None:
        """Forget a node no live attempt holds; the store is told by its driver."""
        self.capacity.drop_node(node_id)
        self._touched_nodes.pop(node_id, None)

    def put_job(self, job: Job) -> None:
        """Replace the job's value; its live attempt, if new, is put after it."""
        job_id = job.job_id
        before = self._jobs.get(job_id)
        self._jobs[job_id] = job
        self._touched_jobs[job_id] = None
        if before is not None and before.state is JobState.PENDING:
            del self.pending[job_id]
        if job.state is JobState.PENDING:
            self.pending[job_id] = None
        self._requeue(before, job)
        if job_id in self.running.places:
            self._place(job)
        if self.ordering.thresholds:
            self._time_crossing(job)
        if self.ordering.promote_knob is not None or self.ordering.starve_limit_s is not None:
            self._time_promotion(job)

    def put_attempt(self, attempt: Attempt) -> None:
        """Replace the attempt's value: claims or frees its GPUs as its state says."""
        key = attempt.key
        before = self._attempts.get(key)
        self._attempts[key] = attempt
        self._touched_attempts[key] = None
        self._claim(before, attempt)
        if before is not None and before.state is AttemptState.UNKNOWN:
            self.silent.pop(key, None)
        if attempt.state is AttemptState.UNKNOWN:
            self.silent[key] = None
        self._index_term(before, attempt)
        job = self._jobs[key.job_id]
        if attempt.state in ACTIVE:
            self._place(job)
        else:
            self.running.remove(key.job_id)
        if self.ordering.thresholds:
            self._time_crossing(job)

    def take_touched(self) -> Touched:
        """What changed since the last call: exactly the rows a store has to write."""
        touched = Touched(
            tuple(self._jobs[job_id] for job_id in self._touched_jobs),
            tuple(self._attempts[key] for key in self._touched_attempts),
            tuple(self.capacity.nodes[node_id] for node_id in self._touched_nodes),
        )
        self._touched_jobs.clear()
        self._touched_attempts.clear()
        self._touched_nodes.clear()
        return touched

    def forget(self, job_id: JobId) -> None:
        """Drop an ended job and its ended attempts from memory; refused while one is live."""
        job = self._jobs[job_id]
        if not job.ended or self.live_attempt(job) is not None:
            raise ValueError(f"job {job_id} is still {job.state.value}")
        self._touched_jobs.pop(job_id, None)
        del self._jobs[job_id]
        for number in range(1, job.attempts + 1):
            self.forget_attempt(AttemptKey(job_id, number))

    def forget_attempt(self, key: AttemptKey) -> None:
        """Drop an ended attempt from memory; nothing happens if it is not there."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.live:
            raise ValueError(f"attempt {key} is still {attempt.state.value}")
        self._touched_attempts.pop(key, None)
        del self._attempts[key]

    def tail_position(self) -> int:
        """Behind every waiting job."""
        self._tail += 1
        return self._tail

    def head_position(self) -> int:
        """Before every waiting job, behind every one that runs or is promoted."""
        self._head -= 1
        return self._head

    def started_position(self) -> int:
        """Behind every job that started earlier, before every waiting one."""
        self._started += 1
        return self._started

    def promoted_position(self) -> int:
        """Behind every job promoted earlier, before all others."""
        self._promoted += 1
        return self._promoted

    def _count_from(self, sequence: int) -> None:
        if sequence < STARTED_BASE:
            self._promoted = max(self._promoted, sequence)
        elif sequence < STARTED_END:
            self._started = max(self._started, sequence)
        else:
            self._head = min(self._head, sequence)
            self._tail = max(self._tail, sequence)

    def _requeue(self, before: Job | None, job: Job) -> None:
        was = before is not None and before.waiting
        now = job.waiting
        if before is not None and was:
            if now and before.sequence == job.sequence and before.level == job.level:
                return
            self.waiting.remove(self.rank(before), before.request.shape, job.job_id)
        if now:
            self.waiting.add(self.rank(job), job.request.shape, job.job_id, job.sequence)

    def _place(self, job: Job) -> None:
        place = Place(self.rank(job), job.sequence, job.request.gpus)
        if self.running.places.get(job.job_id) != place:
            self.running.put(job.job_id, place)

    def _claim(self, before: Attempt | None, attempt: Attempt) -> None:
        soon = attempt.state is AttemptState.PAUSING
        allocation = attempt.lease.allocation
        if before is None or not before.live:
            if attempt.live:
                self.capacity.claim(attempt.key, allocation, soon=soon)
            return
        was_soon = before.state is AttemptState.PAUSING
        if not attempt.live:
            self.capacity.release(attempt.key, allocation, soon=was_soon)
        elif soon != was_soon:
            self.capacity.mark_soon(allocation, soon=soon)

    def _index_term(self, before: Attempt | None, attempt: Attempt) -> None:
        was = before.lease.term_end_s if before is not None and before.state in ACTIVE else None
        now = attempt.lease.term_end_s if attempt.state in ACTIVE else None
        if was == now:
            return
        if was is not None:
            keys = self.by_term[was]
            del keys[attempt.key]
            if not keys:
                del self.by_term[was]
        if now is not None:
            self.by_term.setdefault(now, {})[attempt.key] = None

    def _time_crossing(self, job: Job) -> None:
        thresholds = self.ordering.thresholds
        if job.level >= len(thresholds) or not (job.waiting or job.live_attempt):
            self.crossings.clear(job.job_id)
            return
        left_gpu_s = thresholds[job.level] - job.attained_gpu_s
        attempt = self.live_attempt(job)
        if left_gpu_s <= 0.0:
            self.crossings.set(job.job_id, 0.0)  # overdue
        elif attempt is None or attempt.started_time_s is None or not attempt.live:
            self.crossings.clear(job.job_id)
        else:
            exact_s = attempt.started_time_s + left_gpu_s / job.request.gpus
            self.crossings.set(job.job_id, exact_s)

    def _time_promotion(self, job: Job) -> None:
        waits = job.waiting and not job.promoted
        knob, limit_s = self.ordering.promote_knob, self.ordering.starve_limit_s
        due: list[float] = []
        if waits and job.queued_since_s is not None:
            # A job that never ran, or is in level 0 already, has nothing for the knob to compare.
            if knob is not None and job.level > 0 and job.executed_s > 0.0:
                due.append(job.queued_since_s + knob * job.executed_s - job.waited_s)
            if limit_s is not None:
                due.append(job.queued_since_s + limit_s)
        if due:
            self.promotions.set(job.job_id, min(due))
        else:
            self.promotions.clear(job.job_id)
