"""The working state: frozen values in, indexes kept beside them, changes remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.attempts.attempt import ACTIVE, LIVE, Attempt
from dlq_master.model.attempts.claims import Claims
from dlq_master.model.attempts.costs import StopCosts
from dlq_master.model.attempts.grace import SlowSaves
from dlq_master.model.attempts.suspending import EMPTIED, MoveCosts, SuspendRules
from dlq_master.model.cache import Memo
from dlq_master.model.cluster.migrations import Migrations
from dlq_master.model.estimates.demand import Offers
from dlq_master.model.estimates.first_steps import FirstSteps
from dlq_master.model.estimates.history import History
from dlq_master.model.estimates.slowdowns import Slowdowns
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import PRIORITIES_PER_BAND, PROFILE_PRIORITY, Band
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.job_changes import at_position
from dlq_master.model.jobs.likeness import likeness
from dlq_master.model.jobs.machine_runs import no_runs
from dlq_master.model.jobs.trials import Profiling, Sent
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.capacity import Capacity, others
from dlq_master.model.nodes.host_sizes import CountedSizes, HostSizes
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.nodes.owned import OwnGpus, could_hold, is_own
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.model.order.keys import Key, Learned, Moving, had, position
from dlq_master.model.order.levels import LevelTimers, held_gpus
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.order import Discipline, Ordering
from dlq_master.model.order.positions import Moves
from dlq_master.model.order.running import RunningIndex
from dlq_master.model.order.waiting import Drift, WaitingByTeam, WaitingIndex
from dlq_master.model.resources import Allocation, Shape, mask_of
from dlq_master.model.usage.shares import ShareLedger, Shares
from dlq_master.model.values import maker

# Looking an enum's member up costs more than comparing it, and these are on the hot path.
_PENDING = JobState.PENDING
_SLO = Band.SLO
_PROFILE = Band.PROFILE
_SPOT = Band.SPOT
_QUEUED = JobState.QUEUED
_COMPLETED = JobState.COMPLETED
_NOT, _TOGETHER = Moving.NOT, Moving.TOGETHER
_key = maker(AttemptKey)

_ALIKE_KEPT = 1 << 16  # shapes, however many jobs have come and gone


class Touched(NamedTuple):
    """The values that changed since the last call, as they are now, in order of first change."""

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]
    nodes: tuple[Node, ...]


def _standing(job: Job) -> tuple[object, ...]:
    """The values by which a job with deadlines gets slots or none, but for its progress."""
    return job.state, job.verdict, job.promised, job.band, job.steps, job.duration_estimate_s


def _keep(index: dict[JobId, None], job_id: JobId, belongs: bool) -> None:
    if belongs:
        index[job_id] = None
    else:
        index.pop(job_id, None)


class Cluster:
    """The values of all jobs, attempts and nodes, and the indexes over them.

    `drive` changes it through `put_*`; each costs O(1) or O(log n). Values are replaced, never
    mutated, so a reader may keep them. Free GPUs, queue positions and timers are derived from the
    values: `tests/support/validate.py` compares them all.
    """

    def __init__(self, ordering: Ordering, terms: Terms, speeds: TypeSpeeds = ALL_ALIKE) -> None:
        self.ordering = ordering
        self.terms = terms
        self.speeds = speeds  # of GPU types
        self.moves = Moves(ordering.discipline)
        self.capacity = Capacity()
        self.claims = Claims(self.capacity)
        self._drift = None if ordering.moving is None else Drift()
        self.waiting = self._lines(ordering)
        self.running = RunningIndex()
        together = ordering.discipline is Discipline.REQUEUE
        self.lineup = Lineup(self.waiting, self.running, together)
        self.levels = LevelTimers(ordering)
        self.saves = SlowSaves(terms)  # of running jobs
        self.pending: dict[JobId, None] = {}
        self.returning: dict[JobId, None] = {}  # stopped for a resize; their new GPUs are kept
        self.keeping: dict[JobId, None] = {}  # waiting after a lost node; their other GPUs are kept
        self.groups: dict[JobId, dict[JobId, None]] = {}  # members that have not ended, by group
        self.migrations = Migrations()
        self.by_term = self.running.by_term
        self.suspends: SuspendRules | None = None  # of the policy; None: preempted jobs save
        self.move_costs = MoveCosts()
        self.resizes_live = True  # False: a forecast, in which no joining rank is launched
        self._jobs: dict[JobId, Job] = {}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self.jobs: Mapping[JobId, Job] = MappingProxyType(self._jobs)
        self.attempts: Mapping[AttemptKey, Attempt] = MappingProxyType(self._attempts)  # live ones
        self.nodes: Mapping[NodeId, Node] = MappingProxyType(self.capacity.nodes)
        self._touched_jobs: dict[JobId, Job] = {}
        self._touched_attempts: dict[AttemptKey, Attempt] = {}
        self._touched_nodes: dict[NodeId, Node] = {}
        self._level_count = ordering.levels
        self._promotes = ordering.promotes
        self._by_base = ordering.by_base
        self._bands = ordering.bands
        self._keeps = ordering.keep_s > 0.0
        self.own = OwnGpus()
        self._counted_sizes = CountedSizes()
        self._sizes = HostSizes({})
        self._alike: dict[Shape, Shape] = {}  # a requested shape -> its class on these nodes
        self._own_holds: dict[Shape, bool] = {}  # whether the own nodes could ever hold it
        self.due: dict[JobId, None] = {}  # queued jobs with deadlines
        self.costly: dict[JobId, None] = {}  # queued jobs that name a cost of being late
        self.unjudged: dict[JobId, None] = {}  # with deadlines, and without a verdict
        self.judged: dict[JobId, None] = {}  # with a verdict, whichever
        self.judged_changes = 0  # of values by which a judged job gets slots or none
        self.promised: dict[JobId, None] = {}  # with a promise
        self.seated: dict[JobId, None] = {}  # queued, with a promise and a slot now
        self.offers = Offers()
        self.memo = Memo()
        self.slot = -1  # the slot of the SLO grid that was decided last
        self.profiling = Profiling(terms.resume_s)
        self.history = History(ordering.refresh)
        self.costs = StopCosts()
        self.first_steps = FirstSteps()
        self.ran = no_runs()  # how long jobs took, for machines that may be rented
        self.packing: Packing | None = None  # set by plans; None: shapes say nothing of it
        self.slowdowns = Slowdowns()
        self.shares = None if ordering.half_life_s is None else Shares(ordering.half_life_s)
        self.key: Key | None = None
        self._unlearned: Key | None = None  # as if no service had been learned
        self.know()

    @property
    def learned(self) -> Learned:
        """The learned values on which the key of a job may depend."""
        services = self.history.learned
        if self.shares is None:
            return Learned(self.levels.thresholds, services)
        return Learned(self.levels.thresholds, services, self.shares.standing)

    def weigh(self, term: int, standing: Mapping[str, int]) -> None:
        """Set how accounts stand against their shares, and place all waiting jobs anew."""
        if self.shares is None:
            raise ValueError("this ordering knows no shares")
        self.shares.term = term
        if standing != self.shares.standing:
            self.shares.standing = standing
            self._place_all()

    def share(self, shares: Shares | None) -> None:
        """Take over the stored shares of another cluster."""
        if self.shares is not None and shares is not None:
            self.shares.ledger = ShareLedger(self.shares.ledger.half_life_s, shares.ledger.accounts)
            self.shares.standing, self.shares.term = shares.standing, shares.term
            self._place_all()

    def _place_all(self) -> None:
        """Place all waiting jobs anew, if the key of the order has changed."""
        if self.know():
            self.waiting.place(lambda job_id: self._placed(self._jobs[job_id]))

    def know(self) -> bool:
        """Make the key of the order from what was learned; True if it differs from the one before.
        Waiting jobs keep their places.
        """
        rule, learned = self.ordering.key, self.learned
        if rule is None:
            return False
        if self._drift is not None:
            self._unlearned = rule(learned._replace(services_gpu_s=()))
        key = rule(learned)
        if key is self.key:
            return False
        self.key = key
        if self._drift is not None:
            self._drift.learn(None if key is self._unlearned else self._stands_now)
        return True

    def _stands_now(self, job_id: JobId) -> int:
        return self.stands(self._jobs[job_id])

    def learn(self, history: History | None, slowdowns: Slowdowns, offers: Offers) -> None:
        """Take over what another cluster has learned. Call it before any job is put."""
        if history is not None:
            self.history = history
        self.slowdowns, self.offers = slowdowns, offers
        self.know()

    def unlearn(self) -> None:
        """Learn into values that `relearn_from` throws away."""
        self.history, self.costs = History(None), StopCosts()

    def relearn_from(self, other: Cluster) -> None:
        """Take over all knowledge of `other`, which has the same ordering and no jobs."""
        self.history, self.costs = other.history, other.costs
        self.first_steps, self.ran = other.first_steps, other.ran
        self.slowdowns, self.offers, self.shares = other.slowdowns, other.offers, other.shares
        self.profiling.remember(other.profiling.remembered)
        self._place_all()

    def reposition(self) -> None:
        """Count positions anew from the present jobs."""
        self.moves = Moves(self.ordering.discipline)
        for job in self._jobs.values():
            self.moves.positions.seen(job.sequence)

    def live_attempt(self, job: Job) -> Attempt | None:
        if job.live_attempt is None:
            return None
        return self._attempts.get(_key((job.job_id, job.live_attempt)))

    def speed_of(self, allocation: Allocation) -> float:
        """The speed of its slowest GPU, relative to the reference type."""
        return self.speeds.slowest(self.capacity.parts(allocation))

    def pace(self, job: Job, gpu_type: str) -> float:
        """Seconds of the job's run time that one second on this type does: measured for its
        program, or else declared. The type with the most own GPUs always counts as declared.
        """
        speeds, home = self.speeds, self.own.home
        if not speeds.declared:
            return 1.0
        if job.family and gpu_type != home and not job.request.names_one_type:
            times = self.profiling.measured_times(likeness(job), home, gpu_type)
            if times is not None:
                return speeds.of(home) / times
        return speeds.pace(job.request, gpu_type)

    def slowest_pace(self, job: Job, gpu_types: Iterable[str]) -> float:
        """The lowest pace on any of these types; 1 if there are none."""
        if not self.speeds.declared:
            return 1.0
        return min([self.pace(job, gpu_type) for gpu_type in gpu_types], default=1.0)

    def fastest_pace(self, job: Job) -> float:
        """The highest pace on any type that the job may get; 1 if there is none."""
        self.capacity.ready()
        may_be = filter(job.request.shape.may_be, self.capacity.total)
        return max([self.pace(job, gpu_type) for gpu_type in may_be], default=1.0)

    def declared_speeds(self) -> dict[str, float]:
        """The declared speeds of its GPU types."""
        speeds = self.speeds
        return {kind: speeds.of(kind) for kind in self.capacity.gpu_types if speeds.names(kind)}

    def priority(self, job: Job) -> int:
        """Lower priorities are served first."""
        priority = job.priority_base * self._level_count + job.level
        if not self._bands:
            return priority
        return (
            PROFILE_PRIORITY if job.band is _PROFILE else priority + job.band * PRIORITIES_PER_BAND
        )

    def elastic(self, job: Job) -> bool:
        """Whether the policy chooses the number of its GPUs. Where deadlines are promised, a job
        with deadlines counts only if it asks for its base and is not on trial.
        """
        request = job.request
        if not (self._by_base and request.sizes):
            return False
        if self._bands and job.steps:
            return request.gpus == request.sizes[0] and not job.trials
        return True

    def shape(self, job: Job) -> Shape:
        """The shape in which the job is placed: one for all that the nodes cannot tell apart."""
        shape = self.asked(job)
        return shape if shape.traits is None else self.alike(shape)

    def alike(self, shape: Shape) -> Shape:
        """The class of a shape: one for all that the registered nodes cannot tell apart."""
        if shape.traits is None:
            return shape
        known = self._alike.get(shape)
        if known is None:
            if len(self._alike) >= _ALIKE_KEPT:
                self._alike.clear()
            known = shape._replace(traits=self._sizes.alike(shape.traits))
            self._alike[shape] = known
        return known

    def asked(self, job: Job) -> Shape:
        """The shape as requested, with the sizes of nodes that the user asked for."""
        if self._bands and (job.steps or job.band < _SPOT):
            return self._planned_shape(job)
        request = job.request
        shape = request.shape_on(request.base) if self._by_base else request.shape
        return shape if self.packing is None else self.packing.shape(shape, job.profile)

    def _planned_shape(self, job: Job) -> Shape:
        """The shape of a job with deadlines, or on trial. It runs on the cluster's own nodes unless
        those could never hold it: lent nodes may be slower, and may be reclaimed.
        """
        return self._on_own(job, job.shape_now)

    def _on_own(self, job: Job, shape: Shape) -> Shape:
        if job.steps and self.own.foreign and (job.promised is not None or self.own_holds(shape)):
            shape = shape._replace(avoid=(*shape.avoid, *self.own.foreign))
        if job.gpu_type_promised:
            shape = shape.on_type(job.gpu_type_promised)
        if job.promised is not None or job.band < _SPOT:
            return shape._replace(together=True)
        return shape if self.packing is None else self.packing.shape(shape, job.profile)

    def own_holds(self, shape: Shape) -> bool:
        """Whether the own nodes could ever hold it; worked out once until nodes change."""
        shape = self.alike(shape._replace(avoid=()))
        if shape not in self._own_holds:
            self._own_holds[shape] = could_hold(self.nodes.values(), shape)
        return self._own_holds[shape]

    def shape_on(self, job: Job, gpus: int) -> Shape:
        shape = self.alike(job.request.shape_on(gpus))
        if self._bands and job.steps:
            return self._on_own(job, shape)
        return shape if self.packing is None else self.packing.shape(shape, job.profile)

    def _lines(self, ordering: Ordering) -> WaitingIndex:
        by_key = ordering.key is not None
        if not ordering.by_team:
            return WaitingIndex(by_key=by_key, drift=self._drift)
        return WaitingByTeam(
            lambda job_id: self.counted_to(self._jobs[job_id]), by_key=by_key, drift=self._drift
        )

    def counted_to(self, job: Job) -> str:
        """Among whom it waits, where teams make a difference."""
        return job.account if self.ordering.by_member else job.team or job.user

    def repack(self, packing: Packing | None) -> None:
        """Other jobs are kept together from here on, so waiting jobs get their shape anew."""
        with self._reshaped(self._jobs):
            self.packing = packing

    @contextmanager
    def _reshaped(self, job_ids: Iterable[JobId]) -> Iterator[None]:
        """Calls meanwhile change the shapes of those of them that wait."""
        waiting = [job for job in map(self._jobs.__getitem__, job_ids) if job.waiting]
        for job in waiting:
            self.waiting.remove(self.priority(job), self.shape(job), job.job_id)
        yield
        for job in sorted(waiting, key=lambda job: job.sequence):
            self.waiting.add(self.priority(job), self.shape(job), job.job_id, *self._placed(job))

    def _placed(self, job: Job) -> tuple[int, Moving]:
        """Its position as the index of waiting jobs keeps it, and how that moves."""
        moving, key = self.ordering.moving, self.key
        if moving is None or key is None or job.band is _PROFILE:
            return self.stands(job), _NOT
        has_had = had(job, None, 0.0)
        how = moving(job, has_had)
        if how is _TOGETHER:
            assert self._unlearned is not None
            key = self._unlearned
        return position(job, key(job, has_had)), how

    def stands(self, job: Job) -> int:
        """The position, in its priority, of a job that waits."""
        if self.key is None:
            return job.sequence
        if job.band is _PROFILE:  # whoever was sent first, be it held back before
            return position(job, (job.trial_time_s or 0.0,))
        return position(job, self.key(job, had(job, None, 0.0)))

    def is_free(self, allocation: Allocation) -> bool:
        """Whether a suspended attempt may come back to these GPUs, be it only to save."""
        return all(mask & ~self.free_to_return(node_id) == 0 for node_id, mask in allocation.slots)

    def to_judge(self) -> list[JobId]:
        """Jobs whose deadlines can be promised or not by now, in order. Of one that is suspended
        nobody knows when it comes back, so it is judged then.
        """
        if not self.unjudged:
            return []
        away = {key.job_id for key in self.claims.suspended}
        return sorted(job_id for job_id in self.unjudged if job_id not in away)

    def free_to_return(self, node_id: NodeId) -> int:
        """The GPUs that nobody has, on a node that takes work or is being emptied, as a bitmask."""
        node = self.nodes.get(node_id)
        if node is None:
            return 0
        emptied = node.state is NodeState.UP and node.flags & EMPTIED
        if not (node.takes_work or emptied):
            return 0
        known = mask_of(gpu.index for gpu in node.gpus)
        return known & ~node.withheld & ~self.capacity.claimed(node_id)

    def attempts_on(self, node_id: NodeId) -> tuple[AttemptKey, ...]:
        """Live attempts that hold GPUs of the node or are suspended there, in the order of their
        keys. Attempts whose jobs only have GPUs kept there, to go on later, are left out.
        """
        held = self.capacity.claims.get(node_id) or {}
        if self.claims.out:  # suspended attempts hold no GPUs, and come back to these
            out = [key for key, place in self.claims.out.items() if node_id in place.node_ids]
            held = dict.fromkeys((*held, *out), 0)
        return tuple([key for key in sorted(held) if self._is_on(key, node_id)]) if held else ()

    def _is_on(self, key: AttemptKey, node_id: NodeId) -> bool:
        attempt = self._attempts[key]
        if attempt.regrant is None:
            return True
        return any(slot.node_id == node_id for slot in attempt.place.slots)

    def put_node(self, node: Node) -> None:
        before = self.capacity.nodes.get(node.node_id)
        if before is None or is_own(before) is not is_own(node) or others(before, node):
            sizes = self._counted_sizes.change(before, node)
            with self._reshaped(self._told_apart(sizes)):
                self.capacity.put_node(node)
                self._count_own(before, node, sizes)
        else:
            self.capacity.put_node(node)
        self._touched_nodes[node.node_id] = node

    def remove_node(self, node_id: NodeId) -> None:
        """Forget a node that no live attempt holds; the store is told by its driver."""
        before = self.capacity.nodes[node_id]
        sizes = self._counted_sizes.change(before, None)
        with self._reshaped(self._told_apart(sizes)):
            self.capacity.remove_node(node_id)
            self._count_own(before, None, sizes)
        self._touched_nodes.pop(node_id, None)

    def _count_own(self, before: Node | None, node: Node | None, sizes: HostSizes) -> None:
        """Jobs with deadlines are placed elsewhere, so their shapes change."""
        self.own.change(before, node)
        self._own_holds.clear()
        if sizes.steps is not self._sizes.steps:
            self._alike.clear()
        self._sizes = sizes

    def _told_apart(self, sizes: HostSizes) -> Iterable[JobId]:
        """Waiting jobs with another shape once nodes have these sizes. Also jobs with deadlines,
        which may be placed elsewhere."""
        if sizes.steps is self._sizes.steps:
            return self.due
        apart = [
            job_id
            for shapes in self.waiting.by_priority.values()
            for shape, fifo in shapes.items()
            if not sizes.keeps(shape.traits, self._sizes)
            for job_id in fifo
            if self._jobs[job_id].request.shape.traits is not None
        ]
        return dict.fromkeys((*self.due, *apart))

    def put_job(self, job: Job) -> Job:
        """Replace the job's value. A new one (sequence 0) is returned with a place at the tail."""
        before = self._jobs.get(job.job_id)
        if before is None:
            job = self._entered(job)
        attempt = self.live_attempt(job)
        if attempt is None and before is not None:
            attempt = self.live_attempt(before)  # its end is not told yet
        self._change(before, job, attempt, attempt)
        return job

    def put_attempt(self, attempt: Attempt) -> None:
        """Replace the attempt's value: it claims or frees GPUs as its state says."""
        self.put(self._jobs[attempt.key.job_id], attempt)

    def put(self, job: Job, attempt: Attempt) -> None:
        """Replace the values of a job and its attempt, as one change.

        One after the other does the same, in either order: every index says what the two are now,
        never how they came to be.
        """
        key = attempt.key
        held = self._attempts.get(key)
        holds = attempt if attempt.state in LIVE else None
        if holds is not None:
            self._attempts[key] = holds
        elif held is not None:
            del self._attempts[key]
        self._touched_attempts[key] = attempt
        self._change(self._jobs[key.job_id], job, held, holds)

    def renew(self, attempt: Attempt) -> None:
        """Replace the attempt's value; only the end of its term is another."""
        key = attempt.key
        self._attempts[key] = attempt
        self._touched_attempts[key] = attempt
        self.running.renew(key, attempt.lease.term_end_s)

    def touched_attempt(self, key: AttemptKey) -> Attempt | None:
        """An attempt as it was left since the last `take_touched`, whether it lives or has ended;
        None: it was not changed.
        """
        return self._touched_attempts.get(key)

    def take_touched(self) -> Touched:
        """The changes since the last call: exactly the rows a store has to write."""
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
        """The job is to stop running: it waits before those that waited all along."""
        self._move(job_id, self.moves.leave(self._jobs[job_id]))

    def settle(self) -> None:
        """Jobs that were demoted while they ran, and still run, stand behind all that run."""
        jobs = [self._jobs[job_id] for job_id in self.moves.unsettled if job_id in self._jobs]
        self.moves.unsettled.clear()
        for job in sorted(jobs, key=lambda job: job.sequence):
            if job.live_attempt is not None and not job.ended:
                self._move(job.job_id, self.moves.positions.started())

    def _entered(self, job: Job) -> Job:
        if job.sequence:
            self.moves.positions.seen(job.sequence)
            return job
        return at_position(job, self.moves.positions.tail())

    def _move(self, job_id: JobId, sequence: int | None) -> None:
        if sequence is not None:
            self.put_job(at_position(self._jobs[job_id], sequence))

    def _change(
        self, before: Job | None, job: Job, held: Attempt | None, holds: Attempt | None
    ) -> None:
        """Bring every index from one pair of job and live attempt to the next."""
        if job is not before:
            job_id = job.job_id
            self._jobs[job_id] = job
            self._touched_jobs[job_id] = job
            self._index_job(before, job)
            if self._keeps and (job.kept is not None or job_id in self.keeping):
                _keep(self.keeping, job_id, job.kept is not None and job.waiting)
            if job.array is not None and job.array.members:
                self._index_group(job, job.array.array_id)
        self._index_attempt(job, held, holds)
        if self.levels.thresholds:
            self.levels.cross(job, holds)

    def _index_job(self, before: Job | None, job: Job) -> None:
        """The values that the job alone decides."""
        if job.state is _PENDING or (before is not None and before.state is _PENDING):
            _keep(self.pending, job.job_id, job.state is _PENDING and job.blocked is None)
        waits = job.waiting
        if before is not None and before.waiting:
            self._index_waiting(before, job, waits)
        elif waits:
            self.waiting.add(self.priority(job), self.shape(job), job.job_id, *self._placed(job))
        if self._by_base and (self.returning or job.regrant is not None):
            _keep(self.returning, job.job_id, waits and job.regrant is not None)
        if job.lateness is not None or (before is not None and before.lateness is not None):
            _keep(self.costly, job.job_id, job.state is _QUEUED and job.lateness is not None)
        if self._bands:
            ended = job.state is _COMPLETED and self.speeds.declared
            pace = self.pace(job, job.gpu_type_ran) if ended else 1.0
            self.profiling.index(before, job, pace)
            if job.steps or (before is not None and before.steps):
                self._index_judged(before, job)
        if job.saves:
            self.saves.index(before, job)
        if job.family and (job.saves or job.resumes):
            self.costs.index(before, job)
        if self._promotes:
            self.levels.promote(job)
        if job.state is _COMPLETED and before is not None and before.state is not _COMPLETED:
            self._learn(job)

    def _index_group(self, job: Job, group_id: JobId) -> None:
        members = self.groups.setdefault(group_id, {})
        _keep(members, job.job_id, not job.ended)
        if not members:
            del self.groups[group_id]

    def recall(self, job: Job) -> None:
        """Learn from a job of a database that has no rows of what was learned: its run time, the
        cost of its saves, its service.
        """
        if job.family and (job.saves or job.resumes):
            self.costs.index(None, job)
        if self._bands and job.trial_time_s is not None:
            self.profiling.send(Sent(job.trial_time_s, job.user, job.request.gpus))
        if job.state is _COMPLETED:
            if self._bands:
                self.profiling.learn(job, self.pace(job, job.gpu_type_ran))
            self._learn(job)

    def _learn(self, job: Job) -> None:
        """Once for each job, when it completes."""
        if self.history.add(job.total_gpu_s):
            self.relearn()

    def relearn(self) -> None:
        """The history says something new: levels get other bounds, and jobs other keys."""
        if self.ordering.quantiles and self.history.learned:
            self._rethreshold(tuple(map(self.history.quantile, self.ordering.quantiles)))
        if self.know():
            self.waiting.resort(self._stands_now)

    def _rethreshold(self, thresholds: tuple[float, ...]) -> None:
        """Levels get other bounds, unless these do not rise; no job rises."""
        if thresholds == self.levels.thresholds or list(thresholds) != sorted(set(thresholds)):
            return
        self.ordering = replace(self.ordering, thresholds=thresholds)
        self.levels.thresholds = thresholds
        for job in self._jobs.values():
            if not job.ended:
                self.levels.cross(job, self.live_attempt(job))

    def _index_waiting(self, before: Job, job: Job, waits: bool) -> None:
        was = self.priority(before)
        if not waits:
            self.waiting.remove(was, self.shape(before), job.job_id)
            return
        now = self.priority(job)
        same_shape = (
            before.request is job.request
            and before.profile is job.profile
            and before.promised == job.promised
            and before.steps is job.steps
            and before.trials is job.trials
        )
        same_line = was == now and same_shape and before.team == job.team
        if same_line and self._placed(before) == self._placed(job):
            return
        self.waiting.remove(was, self.shape(before), job.job_id)
        self.waiting.add(now, self.shape(job), job.job_id, *self._placed(job))

    def _index_judged(self, before: Job | None, job: Job) -> None:
        queued = job.state is _QUEUED and bool(job.steps)
        if before is None or _standing(before) != _standing(job):
            self.judged_changes += 1
        _keep(self.due, job.job_id, queued)
        told = queued and not job.verdict and job.timed
        _keep(self.unjudged, job.job_id, told)
        _keep(self.judged, job.job_id, queued and bool(job.verdict))
        _keep(self.promised, job.job_id, queued and job.promised is not None)
        _keep(self.seated, job.job_id, queued and job.band is _SLO)

    def _index_attempt(self, job: Job, held: Attempt | None, holds: Attempt | None) -> None:
        """The values that the attempt's state decides: its claims on GPUs, and its place."""
        self.claims.change(held, holds)
        if holds is not None and holds.state in ACTIVE:
            end_s = holds.lease.term_end_s
            gpus = held_gpus(job, holds)
            self.running.put(holds.key, self.priority(job), job.sequence, gpus, end_s)
            if job.request.without_gpus:
                self.running.without_gpus.add(job.job_id)
            if job.request.sizes:
                self.running.sized.add(job.job_id)
            elif self.running.sized:
                self.running.sized.discard(job.job_id)
        elif held is not None and held.state in ACTIVE:
            self.running.remove(held.key)
