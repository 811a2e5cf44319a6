"""Replays a trace: every job of it, from its submission to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_simulator.metrics import Billed, ReplayOutcome, measure, percentile
from dlq_simulator.queues import TraceQueues
from dlq_simulator.replay.clockwork import Engine, Watch
from dlq_simulator.results.report import Result, Timing
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.fleet import cost, gpu_seconds
from dlq_simulator.world.world import (
    GpuMemory,
    asked_types,
    build_cluster,
    build_job,
    room,
    sizes_of,
)

Progress = Callable[[int], object]  # jobs finished since the last call


def replay(
    trace: Trace,
    cluster: ClusterSpec,
    settings: ReplaySettings,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run every job of the trace to its end. A job that no set of nodes could hold is refused."""
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
    outcomes = [run.outcome(job_id) for job_id in sorted(run.outcomes)]
    return Result(
        policy=settings.policy.name,
        metrics=measure(
            outcomes,
            gpus=cluster.gpus,
            refused=len(run.refused),
            billed=run.billed(),
            promises=settings.policy.promises is not None,
        ),
        outcomes=outcomes,
        timing=timing,
        notes=run.notes(),
    )


class Replay(Engine):
    """A trace from its first submission to its last end."""

    def __init__(
        self,
        trace: Trace,
        spec: ClusterSpec,
        settings: ReplaySettings,
        *,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.queues = TraceQueues(trace, settings.policy, settings.queues)
        self.memory = GpuMemory(trace, spec)
        cluster = build_cluster(spec, settings.policy.ordering, settings.terms, self.memory)
        if settings.policy.suspends is not None:
            room(cluster, settings.moves.gpu_bytes, settings.moves.host_bytes)
        courses = {JobId(number): Course(row) for number, row in enumerate(trace.jobs, start=1)}
        super().__init__(
            cluster,
            self.queues.policy,
            settings,
            spec,
            courses,
            trace.jobs[0].submit_time_s,
            arrivals=[(course.row.submit_time_s, job_id) for job_id, course in courses.items()],
            whole_seconds=trace.whole_seconds,
            watch=watch,
            labels=self.memory.labels,
        )
        self.progress = progress

    def run(self, until_s: Seconds | None = None) -> None:
        """Run until no event is left, or none before this instant."""
        while len(self.outcomes) + len(self.refused) < len(self.courses):
            instant_s = self._next_instant()
            if until_s is not None and instant_s >= until_s:
                return
            self._turn(instant_s)

    def outcome(self, job_id: JobId) -> ReplayOutcome:
        """The outcome of an ended job, with its rented machines."""
        found = self.outcomes[job_id]
        if self.beside is None:
            return found
        return replace(found, rented_gpu_s=self.beside.machines.held_gpu_s.get(job_id, {}))

    def notes(self) -> list[str]:
        """Remarks about this run for people."""
        if not self.refused:
            return []
        first = next(iter(self.refused))
        name = self.courses[first].row.job_id
        jobs = "1 job" if len(self.refused) == 1 else f"{len(self.refused)} jobs"
        return [f"refused {jobs}; the first, {name}: {self.refused[first]}"]

    def billed(self) -> Billed | None:
        """The figures for priced nodes and lent servers."""
        spec, begin_s = self.spec, self.begin_s
        end_s = max((outcome.finish_s for outcome in self.outcomes.values()), default=begin_s)
        price = cost(spec, begin_s, end_s)
        if price is None and not spec.lends and not spec.reservations and self.beside is None:
            return None
        reclaimed = self.leaving.reclaimed if spec.lends else None
        billed = Billed(gpu_seconds(spec, begin_s, end_s), price, reclaimed, self.fleet.tolls)
        return billed if self.beside is None else self.beside.machines.billed(billed, end_s)

    def _arrive(self, job_id: JobId) -> None:
        row = self.courses[job_id].row
        sizes: tuple[int, ...] = ()
        # A job that cannot save cannot be resized.
        if self.policy.sizing is not None and row.checkpoint:
            sizes = sizes_of(row)
        sizing, rates = self.policy.sizing, self.rates
        by_goodput = sizing is not None and sizing.by_goodput
        asked = asked_types(row, typed=self.spec.typed) or ()
        named = self.cluster.speeds.of(*asked) if len(asked) == 1 else 1
        job = build_job(
            job_id,
            row,
            typed=self.spec.typed,
            estimate_s=self.estimates.at_submit(job_id, row, named, rates.alone(row, row.num_gpus)),
            queue=self.queues.of(row),
            team=row.vc or "" if self.settings.teams == "vc" else "",
            constraint=self.memory.asked(row),
            sizes=sizes,
            speeds=self.estimates.speeds(row, sizes, rates, by_goodput=by_goodput),
        )
        drive.submit(self.cluster, job)

    def _advance(self) -> None:
        if self.progress is not None:
            self.progress(1)
