"""The working state: frozen values in, indexes kept beside them, changes remembered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.attempt import ACTIVE, Attempt, AttemptState
from dlq_master.model.capacity import Capacity
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import Job, JobState
from dlq_master.model.lease import Terms
from dlq_master.model.node import Node
from dlq_master.model.order import (
    STARTED_BASE,
    STARTED_END,
    Discipline,
    Ordering,
    Positions,
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
        self.jobs: Mapping[JobId, Job] = MappingProxyType(self._jobs)
        self.attempts: Mapping[AttemptKey, Attempt] = MappingProxyType(self._attempts)  # live ones
        self.nodes: Mapping[NodeId, Node] = MappingProxyType(self.capacity.nodes)
        self._touched_jobs: dict[JobId, Job] = {}
        self._touched_attempts: dict[AttemptKey, Attempt] = {}
        self._touched_nodes: dict[NodeId, Node] = {}
        self.positions = Positions()

    def live_attempt(self, job: Job) -> Attempt | None:
        """The job's live attempt, if it has one."""
        if job.live_attempt is None:
            return None
        return self._attempts.get(AttemptKey(job.job_id, job.live_attempt))

    def rank(self, job: Job) -> int:
        return self.ordering.rank(job.rank_base, job.level)

    def attempts_on(self, node_id: NodeId) -> tuple[AttemptKey, ...]:
        """Live attempts that hold GPUs of the node, in the order of their keys."""
        return tuple(sorted(self.capacity.claims.get(node_id, ())))

    def put_node(self, node: Node) -> None:
        self.capacity.put_node(node)
        self._touched_nodes[node.node_id] = node

    def remove_node(self, node_id: NodeId) -> None:
        """Forget a node that no live attempt holds; the store is told by its driver."""
        self.capacity.remove_node(node_id)
        self._touched_nodes.pop(node_id, None)

    def put_job(self, job: Job) -> Job:
        """Replace the job's value; returns it with the position that the change gives it.

        A new job (sequence 0) goes to the tail. A job that is given GPUs is put before its attempt.
        """
        job_id = job.job_id
        before = self._jobs.get(job_id)
        job = self._positioned(before, job)
        self._jobs[job_id] = job
        self._touched_jobs[job_id] = job
        if before is not None and before.state is JobState.PENDING:
            del self.pending[job_id]
        if job.state is JobState.PENDING:
            self.pending[job_id] = None
        self._requeue(before, job)
        if job_id in self.running.places:
            self._place(job)
        if self.ordering.thresholds:
            self._time_crossing(job)
        if self.ordering.promotes:
            self._time_promotion(job)
        return job

    def put_attempt(self, attempt: Attempt) -> None:
        """Replace the attempt's value: claims or frees its GPUs as its state says."""
        key = attempt.key
        before = self._attempts.get(key)
        if attempt.live:
            self._attempts[key] = attempt
        elif before is not None:
            del self._attempts[key]
        self._touched_attempts[key] = attempt
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
            tuple(self._touched_jobs.values()),
            tuple(self._touched_attempts.values()),
            tuple(self._touched_nodes.values()),
        )
        self._touched_jobs.clear()
        self._touched_attempts.clear()
        self._touched_nodes.clear()
        return touched

    def forget(self, job_id: JobId) -> None:
        """Drop an ended job from memory; refused while it, or its last attempt, lives."""
        job = self._jobs[job_id]
        if not job.ended or self.live_attempt(job) is not None:
            raise ValueError(f"job {job_id} is still {job.state.value}")
        self._touched_jobs.pop(job_id, None)
        del self._jobs[job_id]

    def leave(self, job_id: JobId) -> None:
        """The job stops running: it waits before those that waited all along."""
        job = self._jobs[job_id]
        self.unsettled.pop(job_id, None)
        if self.ordering.discipline is Discipline.REQUEUE and job.sequence < STARTED_END:
            self.put_job(job._replace(sequence=self.positions.head()))

    def settle(self) -> None:
        """Jobs that were demoted while they ran, and still run, stand behind all that run."""
        jobs = [self._jobs[job_id] for job_id in self.unsettled]
        self.unsettled.clear()
        for job in sorted(jobs, key=lambda job: job.sequence):
            self.put_job(job._replace(sequence=self.positions.started()))

    def _positioned(self, before: Job | None, job: Job) -> Job:
        """Where the change from `before` puts the job, by the cluster's discipline."""
        discipline = self.ordering.discipline
        if before is None:
            if job.sequence == 0:
                return job._replace(sequence=self.positions.tail())
            self.positions.seen(job.sequence)
            return job
        if job.promoted and not before.promoted:
            return job._replace(sequence=self.positions.promoted())
        if discipline is Discipline.ARRIVAL:
            return job
        started = STARTED_BASE <= job.sequence < STARTED_END
        requeues = discipline is Discipline.REQUEUE
        if before.live_attempt != job.live_attempt:
            if job.live_attempt is not None:
                if requeues or not started:
                    return job._replace(sequence=self.positions.started())
            else:
                self.unsettled.pop(job.job_id, None)
                if requeues and job.sequence < STARTED_END:
                    return job._replace(sequence=self.positions.head())
        elif requeues and job.level > before.level:
            if job.live_attempt is not None:
                self.unsettled[job.job_id] = None
            return job._replace(sequence=self.positions.tail())
        elif before.state is JobState.HELD and job.waiting and (requeues or not started):
            return job._replace(sequence=self.positions.tail())
        return job

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
