"""The virtual clock: time jumps from event to event, and the master's own core decides.

The loop does the same as the daemon's turn. It applies the events of this instant, decides, and
sleeps until the next event or the instant that the policy asked for. `decide` (plan, check, apply)
is `dlq_master`'s. Only the world is simulated: jobs arrive, progress, save and end.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop
from typing import TYPE_CHECKING

from dlq_master.model.attempts.attempt_steps import (
    Running,
    StopRequested,
    Succeeded,
    SuspendAsked,
)
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job_steps import Cancelled, Placed
from dlq_master.model.plan import Estimate, Lapse, Reject, Renew, Reserve, Resize, Revoke, Start
from dlq_master.model.resources import Allocation
from dlq_master.policy.pipeline import wake_at_s
from dlq_master.policy.policy import Policy
from dlq_master.policy.turn import Decided, decide
from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.boundaries import Boundaries
from dlq_simulator.replay.estimates import Estimates
from dlq_simulator.replay.events import STEPS, Agenda, Event, InstantKind
from dlq_simulator.replay.leaving import Leaving, stranded
from dlq_simulator.replay.reserving import Reserving
from dlq_simulator.replay.suspending import Suspending
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.fleet import EPOCH, SimulatedFleet
from dlq_simulator.world.world import WorkRates

if TYPE_CHECKING:
    from dlq_simulator.replay.beside import Beside

Labels = Callable[[NodeGroup], frozenset[str]]  # of the nodes of a group
Watch = Callable[[Cluster, Decided, Seconds], object]  # sees the state after every turn


class Engine(ABC):
    """The virtual clock, and the world's reaction to every decision.

    Two subclasses define arrivals and the first state: `Replay` for a trace, and `twin.world.Twin`.
    `begin_s`: the first instant. `courses`: the course of every job that will ever hold GPUs.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        settings: ReplaySettings,
        spec: ClusterSpec,
        courses: dict[JobId, Course],
        begin_s: Seconds,
        *,
        arrivals: Iterable[tuple[Seconds, JobId]],
        whole_seconds: bool,
        watch: Watch | None = None,
        labels: Labels = lambda _: frozenset(),
    ) -> None:
        self.cluster, self.policy, self.settings, self.spec = cluster, policy, settings, spec
        places = not policy.placement.counts_only
        self.rates = WorkRates(settings.speed, spec, cluster, places=places)
        self.estimates = Estimates(settings.knowledge, cluster)
        self.watch = watch
        self.courses = courses
        self.outcomes: dict[JobId, ReplayOutcome] = {}
        self.refused: dict[JobId, str] = {}
        self.plan_times_s: list[float] = []
        self.begin_s = begin_s
        self.fleet = SimulatedFleet(spec, cluster, begin_s)
        self.agenda = Agenda([change.at_s for change in self.fleet.changes], arrivals)
        self.leaving = Leaving(cluster, courses, self.agenda, settings)
        self.suspending = Suspending(
            cluster, courses, self.agenda, self.rates, self.leaving, policy, settings.moves
        )
        self.reserving = Reserving(cluster, self.agenda, self.leaving, begin_s)
        self.beside = None if spec.renting is None else self._beside(labels)
        self._now_s: Seconds = begin_s
        self._wake_s: Seconds | None = None
        self._boundaries = Boundaries(cluster, policy, settings.terms, whole_seconds=whole_seconds)

    def _beside(self, labels: Labels) -> Beside:
        """The part that rents machines; it alone imports numpy."""
        from dlq_simulator.replay.beside import Beside
        from dlq_simulator.replay.machines import RentedMachines

        spec, settings = self.spec, self.settings
        machines = RentedMachines(
            spec.catalogue, self.cluster, self.rates, self.leaving, labels, settings.save_s
        )
        return Beside(
            spec, self.cluster, self.policy, machines, self.agenda, settings.knowledge.seed
        )

    @abstractmethod
    def _arrive(self, job_id: JobId) -> None:
        """A job arrives."""

    @abstractmethod
    def _advance(self) -> None:
        """Count one more ended job."""

    def _next_instant(self) -> Seconds:
        events, wake_s = self.agenda.heap, self._wake_s
        while events and self._stale(events[0]):
            heappop(events)
        if events and (wake_s is None or events[0][0] <= wake_s):
            return events[0][0]
        if not events and self._give_up():  # a policy that plans slot by slot would wake for ever
            return self._now_s
        if wake_s is None:
            waiting = len(self.courses) - len(self.outcomes) - len(self.refused)
            raise self._stands_still(f"{waiting} jobs wait and nothing will ever happen")
        if not events:
            return wake_s
        return self._boundaries.wake(wake_s, events[0][0], step=events[0][2] in STEPS)

    def _stale(self, event: Event) -> bool:
        """Whether an event was foreseen before its attempt was stopped or changed its speed.

        Such an event does not happen, and is no reason to decide.
        """
        at_s, _, kind, job_id, attempt = event
        if kind is not InstantKind.FINISH and kind is not InstantKind.PROFILE:
            return False
        course = self.courses[job_id]
        return course.attempt != attempt or (kind is InstantKind.FINISH and course.finish_s != at_s)

    def _turn(self, now_s: Seconds) -> None:
        self._now_s = now_s
        # Nodes come and go when all that ends at this instant has ended, and before anything is
        # decided.
        while nodes := self._events(now_s):
            for place in nodes:
                change = self.fleet.changes[place]
                self._carry_out(self.fleet.apply(change, self.policy), now_s)
        self.fleet.returns(now_s, self.policy)
        self.reserving.begin_and_end(now_s)
        self._events(now_s)  # a job without anything to save has left
        self.reserving.steer(now_s)
        if self.beside is not None:
            self.beside.machines.come_and_go(now_s)
            self._carry_out(self.beside.arrive(now_s), now_s)
        acted = self._decide(now_s)
        if self.beside is not None:  # after the plan: own nodes come first
            started = self.beside.look(now_s)
            self._carry_out(started, now_s)
            acted = acted or bool(started)
        self._wake_s = self._waking(now_s, acted=acted)

    def _events(self, now_s: Seconds) -> list[int]:
        """Apply the events until this instant; return the due changes of nodes, by their places."""
        nodes, events = [], self.agenda.heap
        while events and events[0][0] <= now_s:
            event = heappop(events)
            _, _, kind, job_id, number = event
            if self._stale(event):
                continue
            if kind in STEPS:
                self._boundaries.stepped()
            if kind is InstantKind.ARRIVE:
                self._arrive(job_id)
            elif kind is InstantKind.FINISH:
                self._finish(job_id, number, now_s)
            elif kind is InstantKind.LEAVE:
                self.leaving.leave(AttemptKey(job_id, number), now_s)
                self.estimates.stopped(job_id, self.courses[job_id], now_s)
            elif kind is InstantKind.MOVE:
                self.suspending.moved(AttemptKey(job_id, number), now_s)
            elif kind is InstantKind.PROFILE:
                self._profiled(job_id, number, now_s)
            elif kind is InstantKind.NODES:
                nodes.append(number)
        return nodes

    def _decide(self, now_s: Seconds) -> bool:
        """Decide as the master would now, and apply the effects; False: there were none."""
        if self.cluster.claims.out:
            self.suspending.throw_back(now_s)
        began_s = time.thread_time()
        decided = decide(self.cluster, self.policy, now_s, EPOCH)
        if decided.fault is not None:
            raise decided.fault
        self.plan_times_s.append(time.thread_time() - began_s)
        self._carry_out(decided.happened, now_s)
        if self.cluster.claims.out:
            self.suspending.settle(now_s)
        if self.watch is not None:
            self.watch(self.cluster, decided, now_s)
        return bool(decided.happened)

    def _carry_out(  # noqa: C901 one case per change
        self, happened: Sequence[Happened], now_s: Seconds
    ) -> None:
        """Apply the effects of a plan's changes to the world.

        A later round of the same decision may stop a job that an earlier round has started. That
        job never ran, and has gone already if stops cost nothing.
        """
        never_ran = set()
        for event, job_id, _, _, change in happened:
            if job_id is None or change is None or type(change) is Renew:  # nearly all of them
                continue
            if isinstance(event, Placed) and isinstance(change, Start | Resize):
                key = AttemptKey(job_id, event.attempt)
                if key in self.cluster.attempts:
                    self._start(job_id, event.attempt, change.allocation, now_s)
                else:
                    never_ran.add(key)
            elif isinstance(change, Lapse | Resize) and isinstance(event, StopRequested):
                if change.key in never_ran:
                    continue
                self.leaving.lapse(change, now_s)
                if change.grace_s == 0:
                    self.estimates.stopped(job_id, self.courses[job_id], now_s)
            elif isinstance(change, Lapse) and isinstance(event, SuspendAsked):
                self.suspending.leave(change.key, now_s)
            elif isinstance(change, Revoke) and isinstance(event, StopRequested):
                self.leaving.revoke(change.key, now_s)
            elif isinstance(change, Reject):
                self._refuse(job_id, change.reason.detail)
            elif isinstance(change, Reserve) and change.promised is not None:
                self._promised(job_id, change.promised)
            elif isinstance(change, Estimate):
                self.estimates.learned(job_id, change.estimate_s)

    def _waking(self, now_s: Seconds, *, acted: bool) -> Seconds | None:
        """When to plan without an event.

        In traces of whole seconds, a threshold crossed within a second counts from the next one, as
        in the reference.
        """
        wake_s = wake_at_s(self.cluster, self.policy, now_s)
        if wake_s is None:
            return None
        if wake_s <= now_s:
            # The turn's own changes are a reason to decide again, as the master would at once.
            if not acted:
                raise self._stands_still(f"at {now_s} s it wants to be woken at {wake_s} s")
            return now_s
        return self._boundaries.on_clock(wake_s)

    def _promised(self, job_id: JobId, step: int) -> None:
        """Note a job's promise; the first one counts."""
        course = self.courses[job_id]
        if course.promised_s is None:
            course.promised_s = self.cluster.jobs[job_id].steps[step].deadline_s

    def _refuse(self, job_id: JobId, why: str) -> None:
        self.refused[job_id] = why
        self.cluster.forget(job_id)
        self._advance()

    def _start(self, job_id: JobId, number: int, allocation: Allocation, now_s: Seconds) -> None:
        key = AttemptKey(job_id, number)
        if self.cluster.attempts[key].stop_cause is None:
            drive.step_attempt(self.cluster, key, Running(), now_s)
        course = self.courses[job_id]
        gpus = allocation.width
        job = self.cluster.jobs[job_id]
        if job.trials and course.trial_start_s is None:
            course.trial_start_s, course.trial_sent_s = now_s, job.trial_time_s
        if job.reduced:
            over_s = self.estimates.tried(course, number, now_s, gpus)
            self.agenda.foresee(over_s, InstantKind.PROFILE, job_id, number)
            return
        rate = self.rates.rate(course.row, allocation, gpus)
        finish_s = course.start(number, now_s, self.settings.resume_s, rate, gpus)
        self.agenda.foresee(finish_s, InstantKind.FINISH, job_id, number)
        profiled_s = self.estimates.started(job_id, course, now_s)
        if profiled_s is not None:
            self.agenda.foresee(profiled_s, InstantKind.PROFILE, job_id, number)

    def _profiled(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        course = self.courses[job_id]
        if self.cluster.jobs[job_id].reduced:
            self.estimates.measured(job_id, course, number, now_s)
        else:
            self.estimates.profiled(job_id, course, now_s)

    def _finish(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        course = self.courses[job_id]
        key = AttemptKey(job_id, number)
        if self.policy.packing is not None:
            run = self.rates.measured(course.row, self.cluster.attempts[key].lease.allocation)
            if run is not None:
                self.cluster.slowdowns.add(run)
        course.tried = bool(self.cluster.jobs[job_id].trials)
        speed = self.cluster.attempts[key].speed
        drive.step_attempt(self.cluster, key, Succeeded(), now_s)
        if self.beside is not None:
            self.beside.ended(self.cluster.jobs[job_id], speed)
        self.cluster.forget(job_id)
        self.outcomes[job_id] = course.outcome(now_s)
        self._advance()

    def _give_up(self) -> bool:
        """No more events will come: refuse jobs that wait for servers that are no longer lent."""
        if not self.spec.lends and self.beside is None:
            return False
        stuck = stranded(self.cluster, self.policy.placement)
        stuck += [self.cluster.jobs[job_id] for job_id in self.cluster.pending]
        why = "the servers that it waits for are not lent again"
        if self.beside is not None:
            why = "no own node could hold it, and no machine was worth renting"
        for job in stuck:
            drive.step_job(self.cluster, job.job_id, Cancelled(), self._now_s)
            self._refuse(job.job_id, why)
        return bool(stuck)

    def _stands_still(self, why: str) -> SimulateError:
        return SimulateError(
            f"the replay of {self.policy.name!r} stands still",
            why,
            "this is an error of dlq: please report it with the trace",
        )
