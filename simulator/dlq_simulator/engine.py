"""Replays a trace: virtual time jumps from event to event, the master's own core decides.

The loop is the daemon's turn without the daemon: take in what happens now, decide, and sleep until
the next event or the instant at which the policy wants to be asked again. `decide` (plan, check,
apply) is `dlq_master`'s; simulated is only what the world would do: jobs arrive, make progress,
save and finish.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import IntEnum
from heapq import heapify, heappop, heappush

from dlq_master.model import drive
from dlq_master.model.attempt_steps import Preempted, Running, StopRequested, Succeeded
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.job_steps import Updated
from dlq_master.model.plan import Lapse, Reject, Start
from dlq_master.model.resources import Allocation
from dlq_master.policy.pipeline import wake_at_s
from dlq_master.policy.policy import Know
from dlq_master.policy.turn import Decided, decide
from dlq_simulator.clusters import ClusterSpec
from dlq_simulator.course import Course, Seconds
from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import Outcome, measure, percentile
from dlq_simulator.queues import Queues
from dlq_simulator.report import Result, Timing
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.workload import Trace
from dlq_simulator.world import Rates, build_cluster, build_job

Progress = Callable[[int], object]  # jobs finished since the last call
Watch = Callable[[Cluster, Decided, Seconds], object]  # sees the state after every turn
EPOCH = 1


class Kind(IntEnum):
    """What the world does by itself."""

    ARRIVE = 0
    FINISH = 1
    LEAVE = 2  # saved: the GPUs are free
    PROFILE = 3  # it has run long enough for an estimate


# (time, sequence, kind, job, attempt): the sequence makes equal times happen in the order in which
# they were foreseen, whatever the rest holds.
Event = tuple[Seconds, int, Kind, JobId, int]


def replay(
    trace: Trace,
    cluster: ClusterSpec,
    settings: ReplaySettings,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run every job of the trace to its end, or refuse it if no set of nodes could ever hold it."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    run = Replay(trace, cluster, settings, progress=progress, watch=watch)
    run.run()
    plans = [plan_s * 1000 for plan_s in run.plan_times_s]
    timing = Timing(
        plan_ms_p50=percentile(plans, 50),
        plan_ms_p99=percentile(plans, 99),
        cpu_s=round(time.process_time() - cpu_s, 6),
        wall_s=round(time.perf_counter() - wall_s, 6),
    )
    outcomes = [run.outcomes[job_id] for job_id in sorted(run.outcomes)]
    return Result(
        policy=settings.policy.name,
        metrics=measure(outcomes, gpus=cluster.gpus, refused=len(run.refused)),
        outcomes=outcomes,
        timing=timing,
        notes=run.notes(),
    )


class Replay:
    """The state of one run; `run` goes to the end."""

    def __init__(
        self,
        trace: Trace,
        spec: ClusterSpec,
        settings: ReplaySettings,
        *,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.queues = Queues(trace, settings.policy, settings.queues)
        self.policy = self.queues.policy
        self.settings = settings
        self.cluster = build_cluster(spec, settings.policy.ordering, settings.terms)
        places = not settings.policy.placement.counts_only
        self.rates = Rates(settings.speed, spec, self.cluster, places=places)
        self.typed = spec.typed
        self.knowledge = settings.knowledge
        self.profiles = settings.knowledge.know is Know.PROFILED
        self.estimates_s: dict[JobId, float] = {}  # of the work of jobs, as far as they are told
        self.whole_seconds = trace.whole_seconds
        self.progress = progress
        self.watch = watch
        self.courses = {
            JobId(number): Course(row) for number, row in enumerate(trace.jobs, start=1)
        }
        self.outcomes: dict[JobId, Outcome] = {}
        self.refused: dict[JobId, str] = {}
        self.plan_times_s: list[float] = []
        self._events: list[Event] = [
            (course.row.submit_time_s, job_id, Kind.ARRIVE, job_id, 0)
            for job_id, course in self.courses.items()
        ]
        heapify(self._events)
        self._sequence = len(self._events)
        self._wake_s: Seconds | None = None

    def run(self) -> None:
        """From turn to turn until nothing is left to happen."""
        while len(self.outcomes) + len(self.refused) < len(self.courses):
            self._turn(self._next_instant())

    def notes(self) -> list[str]:
        """What people should know about this run."""
        if not self.refused:
            return []
        first = next(iter(self.refused))
        name = self.courses[first].row.job_id
        jobs = "1 job" if len(self.refused) == 1 else f"{len(self.refused)} jobs"
        return [f"refused {jobs}; the first, {name}: {self.refused[first]}"]

    def _next_instant(self) -> Seconds:
        events, wake_s = self._events, self._wake_s
        while events and self._stale(events[0]):
            heappop(events)
        if events and (wake_s is None or events[0][0] <= wake_s):
            return events[0][0]
        if wake_s is None:
            waiting = len(self.courses) - len(self.outcomes) - len(self.refused)
            raise self._stands_still(f"{waiting} jobs wait and nothing will ever happen")
        return wake_s

    def _stale(self, event: Event) -> bool:
        """What was foreseen before the attempt was stopped or got another speed: it happens no more,
        and is no reason to decide."""
        at_s, _, kind, job_id, attempt = event
        if kind is Kind.ARRIVE or kind is Kind.LEAVE:
            return False
        course = self.courses[job_id]
        return course.attempt != attempt or (kind is Kind.FINISH and course.finish_s != at_s)

    def _turn(self, now_s: Seconds) -> None:
        events = self._events
        while events and events[0][0] == now_s:
            event = heappop(events)
            _, _, kind, job_id, attempt = event
            if self._stale(event):
                continue
            if kind is Kind.ARRIVE:
                self._arrive(job_id)
            elif kind is Kind.FINISH:
                self._finish(job_id, attempt, now_s)
            elif kind is Kind.LEAVE:
                self._leave(job_id, attempt, now_s)
            else:
                self._profile(job_id, now_s)
        acted = self._decide(now_s)
        self._wake_s = self._waking(now_s, acted=acted)

    def _decide(self, now_s: Seconds) -> bool:
        """What the master would do now, and what the world makes of it; False if nothing."""
        began_s = time.perf_counter()
        decided = decide(self.cluster, self.policy, now_s, EPOCH)
        if decided.fault is not None:
            raise decided.fault
        self.plan_times_s.append(time.perf_counter() - began_s)
        for event, job_id, number, _, change in decided.happened:
            if job_id is None or change is None:
                continue
            if isinstance(change, Start) and number is not None:
                self._start(job_id, number, change.allocation, now_s)
            elif isinstance(change, Lapse) and isinstance(event, StopRequested):
                self._lapse(change, now_s)
            elif isinstance(change, Reject):
                self._refuse(job_id, change.reason.detail)
        if self.watch is not None:
            self.watch(self.cluster, decided, now_s)
        return bool(decided.happened)

    def _waking(self, now_s: Seconds, *, acted: bool) -> Seconds | None:
        """When to plan although nothing happens. Traces in whole seconds keep whole seconds: a
        threshold crossed within a second counts from the next one, as in the reference."""
        wake_s = wake_at_s(self.cluster, self.policy, now_s)
        if wake_s is None:
            return None
        if wake_s <= now_s:
            # What this turn did is itself a reason to decide again, as the master would at once.
            if not acted:
                raise self._stands_still(f"at {now_s} s it wants to be woken at {wake_s} s")
            return now_s
        return math.ceil(wake_s) if self.whole_seconds else wake_s

    def _refuse(self, job_id: JobId, why: str) -> None:
        self.refused[job_id] = why
        self.cluster.forget(job_id)
        self._advance()

    def _arrive(self, job_id: JobId) -> None:
        row = self.courses[job_id].row
        told_s = self.knowledge.at_submit(row)
        if told_s is not None and not self.profiles:
            self.estimates_s[job_id] = told_s
        queue = self.queues.of(row)
        job = build_job(job_id, row, typed=self.typed, estimate_s=told_s, queue=queue)
        drive.submit(self.cluster, job)

    def _profile(self, job_id: JobId, now_s: Seconds) -> None:
        self.estimates_s[job_id] = self.knowledge.after_trial(self.courses[job_id].row)
        self._tell(job_id, now_s)

    def _tell(self, job_id: JobId, now_s: Seconds) -> None:
        """What is known of the job's work, as the run time that the policy counts its seconds against:
        at its speed from here on."""
        estimate_s = self.estimates_s[job_id]
        course, job = self.courses[job_id], self.cluster.jobs[job_id]
        if course.rate != 1 or course.slowed_s:
            executed_s = job.total_executed_s - job.lost_gpu_s / job.request.gpus
            held_s = now_s - course.placed_s
            made_s = course.done_s + max(0, now_s - course.progress_s) * course.rate
            estimate_s = executed_s + held_s + max(0.0, estimate_s - made_s) / course.rate
        told = Updated(values=(("duration_estimate_s", estimate_s),), changes="run estimate")
        drive.step_job(self.cluster, job_id, told, now_s)

    def _start(self, job_id: JobId, number: int, allocation: Allocation, now_s: Seconds) -> None:
        drive.step_attempt(self.cluster, AttemptKey(job_id, number), Running(), now_s)
        course = self.courses[job_id]
        rate = self.rates.rate(course.row, allocation)
        finish_s = course.start(number, now_s, self.settings.resume_s, rate, allocation.width)
        self._foresee(finish_s, Kind.FINISH, job_id, number)
        if job_id in self.estimates_s:
            if rate != 1 or course.slowed_s:
                self._tell(job_id, now_s)
        elif self.profiles:
            left_s = max(0, self.knowledge.profile_s - course.done_s - course.slowed_s)
            self._foresee(course.progress_s + left_s, Kind.PROFILE, job_id, number)

    def _finish(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        course = self.courses[job_id]
        drive.step_attempt(self.cluster, AttemptKey(job_id, number), Succeeded(), now_s)
        self.cluster.forget(job_id)
        self.outcomes[job_id] = course.outcome(now_s)
        self._advance()

    def _lapse(self, lapse: Lapse, now_s: Seconds) -> None:
        job_id, number = lapse.key
        course = self.courses[job_id]
        if lapse.grace_s == 0:
            course.stop(now_s)
            course.leave(now_s)
            return
        stop_s = max(now_s, lapse.at_s - self.settings.save_s)
        if course.finish_s > stop_s:
            course.stop(stop_s)
            self._foresee(stop_s + self.settings.save_s, Kind.LEAVE, job_id, number)

    def _leave(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        drive.step_attempt(self.cluster, AttemptKey(job_id, number), Preempted(), now_s)
        self.courses[job_id].leave(now_s)

    def _stands_still(self, why: str) -> SimulateError:
        return SimulateError(
            f"the replay of {self.policy.name!r} stands still",
            why,
            "this is an error of dlq: please report it with the trace",
        )

    def _foresee(self, at_s: Seconds, kind: Kind, job_id: JobId, number: int) -> None:
        self._sequence += 1
        heappush(self._events, (at_s, self._sequence, kind, job_id, number))

    def _advance(self) -> None:
        if self.progress is not None:
            self.progress(1)
