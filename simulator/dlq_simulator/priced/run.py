"""One policy's replay on rented nodes, as a result like any other."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dlq_master.policy.priced.learning import LearnedTimes
from dlq_master.policy.priced.situation import Schedule, Situation, Solver
from dlq_master.policy.registry.renting import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_simulator.errors import UsageError
from dlq_simulator.metrics import Billed, ReplayOutcome, measure, percentile
from dlq_simulator.priced.instance import RentingInstance, instance_of
from dlq_simulator.priced.settings import Fitting, PricedSettings
from dlq_simulator.priced.times import Fitted, learn
from dlq_simulator.priced.way import Way
from dlq_simulator.priced.world import World
from dlq_simulator.results.report import Result, Timing
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec


def run(
    trace: Trace,
    spec: ClusterSpec,
    chosen: PricedSettings,
    *,
    progress: Callable[[int], object] | None = None,
) -> Result:
    """Every job to its end. UsageError for settings that the policy does not take."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    plans: list[float] = []
    try:
        solver = _timed(build(chosen.name, chosen.words), plans)
    except PolicyError as error:
        what = f"cannot simulate {chosen.name!r}"
        raise UsageError(what, str(error), "correct --set") from error
    instance = instance_of(trace, spec, chosen.speed)
    fitted = None if chosen.fitting is None else _fitted(instance, chosen.fitting)
    bill = World(
        instance,
        solver,
        seed=chosen.seed,
        interval_s=chosen.interval_s,
        resume_s=chosen.resume_s,
        times=fitted,
    ).run()
    rows = {row.job_id: row for row in trace.jobs}
    outcomes = [
        _outcome(rows[instance.jobs[n].job_id], bill.ways[n], finish_s)
        for n, finish_s in sorted(bill.finish_s.items())
    ]
    if progress is not None:
        progress(len(outcomes))
    timing = Timing(
        plan_ms_p50=percentile(plans, 50),
        plan_ms_p99=percentile(plans, 99),
        cpu_s=round(time.process_time() - cpu_s, 6),
        wall_s=round(time.perf_counter() - wall_s, 6),
    )
    priced = any(rented.price_per_hour for rented in instance.catalogue.types)
    hours = {name: round(found, 6) for name, found in bill.hours.items()}
    billed = Billed(bill.gpu_s, bill.nodes if priced else None, machine_hours=hours)
    gpus = instance.nodes * int(instance.catalogue.most.max())
    return Result(
        policy=chosen.name,
        metrics=measure(outcomes, gpus=gpus, billed=billed),
        outcomes=outcomes,
        timing=timing,
        notes=[] if fitted is None else [_told(fitted)],
    )


def _fitted(instance: RentingInstance, fitting: Fitting) -> Fitted:
    """Before the first job; DataError where the history cannot be read."""
    speeds = {kind: instance.speeds.get(kind, 1.0) for kind in instance.catalogue.kinds}
    most = int(instance.catalogue.most.max())
    learned = LearnedTimes(tuple(speeds.values()), most)
    if fitting.history is not None:
        learn(learned, read_trace(fitting.history, "auto", skip_bad=False), speeds)
    return Fitted(instance, learned, fitting.measure_s, refine=fitting.refine)


def _told(fitted: Fitted) -> str:
    errors = 100 * np.array(sorted(fitted.errors.values()))
    return (
        f"estimates of run times at submit are off by {np.median(errors):.0f} % in the median "
        f"job, and by {np.percentile(errors, 90):.0f} % or more in a tenth"
    )


def _timed(solver: Solver, plans_ms: list[float]) -> Solver:
    """The same, which writes down how long its plans took."""

    def solve(situation: Situation, draw: np.random.Generator) -> Schedule:
        began_s = time.perf_counter()
        made = solver(situation, draw)
        plans_ms.append((time.perf_counter() - began_s) * 1000)
        return made

    return solve


def _outcome(row: TraceJob, way: Way, finish_s: float) -> ReplayOutcome:
    held_s = sum(span.end_s - span.begin_s for span in way.spans)
    return ReplayOutcome(
        job=row,
        start_s=way.spans[0].begin_s,
        finish_s=finish_s,
        queue_s=max(0.0, finish_s - row.submit_time_s - held_s),
        overhead_s=way.overhead_s,
        preemptions=way.stops,
        resizes=way.resizes,
        spans=tuple(way.spans),
    )
