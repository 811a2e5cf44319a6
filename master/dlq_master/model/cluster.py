"""The working state: frozen values in, indexes kept beside them, changes remembered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.attempt import ACTIVE, LIVE, Attempt, AttemptState
from dlq_master.model.capacity import Capacity
from dlq_master.model.grace import SAVE_FACTOR, percentile_95
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import Job, JobState
from dlq_master.model.job_draft import at_position
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

# Looking an enum's member up costs more than comparing it, and these are on the hot path.
_PENDING = JobState.PENDING
_HELD = JobState.HELD
_PAUSING = AttemptState.PAUSING
_UNKNOWN = AttemptState.UNKNOWN
_ARRIVAL = Discipline.ARRIVAL
_REQUEUE = Discipline.REQUEUE


class Touched(NamedTuple):
    """Present values of everything that changed since the last look, in order of first change."""

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]
    nodes: tuple[Node, ...]


# A lead is at most this part of the best-effort term.
LONGEST_LEAD = 0.9


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
        self.slow_saves: dict[JobId, float] = {}  # running jobs that need more than the usual lead
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
        if before is None or before.state is not job.state or before.blocked is not job.blocked:
            if job.state is _PENDING and job.blocked is None:
                self.pending[job_id] = None
            else:
                self.pending.pop(job_id, None)
        self._index_waiting(before, job)
        if job_id in self.running.places:
            self._place(job)
        if job.saves:
            self._time_save(job)
        if self.ordering.thresholds:
            self._time_crossing(job)
        if self.ordering.promotes:
            self._time_promotion(job)
        return job

    def put_attempt(self, attempt: Attempt) -> None:
        """Replace the attempt's value: claims or frees its GPUs as its state says."""
        key = attempt.key
        state = attempt.state
        before = self._attempts.get(key)
        was = None if before is None else before.state
        live = state in LIVE
        self._touched_attempts[key] = attempt
        if live:
            self._attempts[key] = attempt
        elif before is not None:
            del self._attempts[key]
        self._claim(attempt, was, live)
        if was is _UNKNOWN:
            self.silent.pop(key, None)
        if state is _UNKNOWN:
            self.silent[key] = None
        was_active, active = was in ACTIVE, state in ACTIVE
        if before is not None and was_active:
            self._leave_term(before)
        if active:
            self.by_term.setdefault(attempt.lease.term_end_s, {})[key] = None
        if active and not was_active:
            self._place(self._jobs[key.job_id])
        elif was_active and not active:
            self.running.remove(key.job_id)
        if self.ordering.thresholds:
            if not live:
                self.crossings.clear(key.job_id)
            elif before is None or before.started_time_s != attempt.started_time_s:
                self._time_crossing(self._jobs[key.job_id])

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

    @property
    def lead_s(self) -> float:
        """How long before a boundary it is decided: enough for the slowest save of what runs, but
        never so long that the next term would be decided before this one has begun."""
        usual_s = self.terms.save_lead_s
        if not self.slow_saves:
            return usual_s
        return min(max(self.slow_saves.values()), LONGEST_LEAD * self.terms.be_term_s)

    def leave(self, job_id: JobId) -> None:
        """The job stops running: it waits before those that waited all along."""
        job = self._jobs[job_id]
        self.unsettled.pop(job_id, None)
        started = STARTED_BASE <= job.sequence < STARTED_END
        if self.ordering.discipline is _REQUEUE and started:
            self.put_job(at_position(job, self.positions.head()))

    def settle(self) -> None:
        """Jobs that were demoted while they ran, and still run, stand behind all that run."""
        jobs = [self._jobs[job_id] for job_id in self.unsettled]
        self.unsettled.clear()
        for job in sorted(jobs, key=lambda job: job.sequence):
            self.put_job(at_position(job, self.positions.started()))

    def _positioned(self, before: Job | None, job: Job) -> Job:
        """The job at the place that the change from `before` gives it."""
        if before is None:
            if job.sequence:
                self.positions.seen(job.sequence)
                return job
            return at_position(job, self.positions.tail())
        if self.ordering.discipline is _ARRIVAL:
            return job
        place = self._new_place(before, job)
        return job if place is None else at_position(job, place)

    def _new_place(self, before: Job, job: Job) -> int | None:
        """Where the job goes under REQUEUE or FIRST_START; None: it stays."""
        if job.end_time_s is not None:
            self.unsettled.pop(job.job_id, None)
            return None
        requeues = self.ordering.discipline is _REQUEUE
        started = STARTED_BASE <= job.sequence < STARTED_END
        stays = started and not requeues
        if before.live_attempt != job.live_attempt:
            if job.live_attempt is not None:
                # A promoted job keeps the head also while it runs, lest the next one takes it down.
                return None if stays or job.sequence < STARTED_BASE else self.positions.started()
            self.unsettled.pop(job.job_id, None)
            return self.positions.head() if requeues and started else None
        if job.promoted and not before.promoted:
            return self.positions.promoted()
        if job.level > before.level:
            return self._lower_place(job, requeues)
        if before.state is _HELD and job.waiting and not stays:
            return self.positions.tail()
        return None

    def _lower_place(self, job: Job, requeues: bool) -> int | None:
        """Where a job goes that was demoted."""
        if not requeues:
            return self.positions.started() if job.sequence < STARTED_BASE else None
        if job.live_attempt is not None:
            self.unsettled[job.job_id] = None
        return self.positions.tail()

    def _index_waiting(self, before: Job | None, job: Job) -> None:
        waits = job.waiting
        if before is not None and before.waiting:
            same_place = before.sequence == job.sequence and before.level == job.level
            if waits and same_place and before.request is job.request:
                return
            self.waiting.remove(self.rank(before), before.request.shape, job.job_id)
        if waits:
            self.waiting.add(self.rank(job), job.request.shape, job.job_id, job.sequence)

    def _place(self, job: Job) -> None:
        place = Place(self.rank(job), job.sequence, job.request.gpus)
        if self.running.places.get(job.job_id) != place:
            self.running.put(job.job_id, place)

    def _claim(self, attempt: Attempt, was: AttemptState | None, live: bool) -> None:
        soon = attempt.state is _PAUSING
        if was is None:
            if live:
                self.capacity.claim(attempt.key, attempt.lease.allocation, soon=soon)
        elif not live:
            self.capacity.release(attempt.key, attempt.lease.allocation, soon=was is _PAUSING)
        elif soon != (was is _PAUSING):
            self.capacity.mark_soon(attempt.lease.allocation, soon=soon)

    def _leave_term(self, attempt: Attempt) -> None:
        end_s = attempt.lease.term_end_s
        keys = self.by_term[end_s]
        del keys[attempt.key]
        if not keys:
            del self.by_term[end_s]

    def _time_save(self, job: Job) -> None:
        save_s = SAVE_FACTOR * percentile_95(job.saves)
        if job.live_attempt is not None and save_s > self.terms.save_lead_s:
            self.slow_saves[job.job_id] = save_s
        else:
            self.slow_saves.pop(job.job_id, None)

    def _time_crossing(self, job: Job) -> None:
        thresholds = self.ordering.thresholds
        number = job.live_attempt
        settled = job.end_time_s is not None or (number is None and not job.waiting)
        if settled or job.level >= len(thresholds):
            self.crossings.clear(job.job_id)
            return
        left_gpu_s = thresholds[job.level] - job.attained_gpu_s
        if left_gpu_s <= 0.0:
            self.crossings.set(job.job_id, 0.0)  # overdue
            return
        attempt = None if number is None else self.live_attempt(job)
        if attempt is None or attempt.started_time_s is None:
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
