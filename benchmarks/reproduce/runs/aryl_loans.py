"""Aryl's lent servers: the jobs on them, and how busy they and all other servers are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.papers.aryl_cases import DAY_S, DAYS, INFERENCE, TRAINING, cluster, workload
from benchmarks.papers.aryl_tables import METHODS, Method
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.policy.turn import Decided
from dlq_simulator.generate.aryl import Diurnal
from dlq_simulator.metrics import ReplayOutcome, percentile
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec
from dlq_simulator.world.loans import lent_at, server_seconds

SERVER_GPUS, HOUR_S, LOOK_S = 8, 3600, 300
SHOWN_FROM_S, SHOWN_HOURS = 6 * DAY_S, 48  # of Figure 9


class OnLoan:
    """Sees each decision of a replay, and notes the jobs that start on lent servers. At the first
    decision of each five minutes it counts their busy GPUs.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.lent = {NodeId(name) for name, group in spec.each_node() if group.lent}
        self.steps = next((group.lent for group in spec.groups if group.lent), ())
        self.jobs: set[JobId] = set()
        self.looks: list[tuple[float, int, int]] = []  # instant, busy and lent GPUs
        self._next_s = 0.0

    def __call__(self, cluster: Cluster, decided: Decided, now_s: float) -> None:
        for _, job_id, _, _, change in decided.happened:
            allocation = getattr(change, "allocation", None)
            if job_id is not None and allocation is not None and self._of(allocation.slots):
                self.jobs.add(job_id)
        if now_s >= self._next_s:
            self._next_s = now_s - now_s % LOOK_S + LOOK_S
            held = (it.lease.allocation.slots for it in cluster.attempts.values())
            busy = sum(self._of(slots) for slots in held)
            self.looks.append((now_s, busy, SERVER_GPUS * lent_at(self.steps, now_s)))

    def _of(self, slots: Sequence[Any]) -> int:
        return sum(mask.bit_count() for node_id, mask in slots if node_id in self.lent)


def on_loan(seed: int, jobs: int) -> dict[str, Any]:
    """Table 7: the jobs that Aryl had on lent servers, under FIFO without loans and under Aryl."""
    method = METHODS["Loaning, Aryl"]
    trace, seen, loaned = _replayed(method, seed, jobs)
    names = {trace.jobs[job_id - 1].job_id for job_id in seen.jobs}
    _, _, alone = _replayed(METHODS["Baseline"], seed, jobs)
    return {
        "share": len(names) / len(trace.jobs),
        "Baseline": _spread(it for it in alone.outcomes if it.job.job_id in names),
        "Aryl": _spread(it for it in loaned.outcomes if it.job.job_id in names),
    }


def use(method: str, seed: int, jobs: int) -> dict[str, Any]:
    """Figures 7 and 9, and the usage in Table 5: means of the trace's days, and series."""
    row = METHODS[method]
    _, seen, result = _replayed(row, seed, jobs)
    hours = _busy_gpus(result.outcomes)
    wave = Diurnal(days=DAYS)
    loads, per_hour = (
        [load.busy for load in wave.loads(Random(f"load/{seed}"))],
        HOUR_S // wave.step_s,
    )
    serving = [
        fmean(loads[at * per_hour : (at + 1) * per_hour]) * INFERENCE * SERVER_GPUS
        for at in range(DAYS * 24)
    ]
    own, everything = TRAINING * SERVER_GPUS, (TRAINING + INFERENCE) * SERVER_GPUS
    span_s = DAYS * DAY_S
    lent = server_seconds(seen.steps, 0, span_s) / span_s * SERVER_GPUS if seen.steps else 0
    both = [(busy + served) / everything for busy, served in zip(hours, serving, strict=True)]
    first = SHOWN_FROM_S // HOUR_S
    return {
        "training": fmean(hours) / (own + lent),
        "overall": fmean(both),
        "hours": both[first : first + SHOWN_HOURS],
        "lent_days": _by_day(seen.looks),
    }


def _replayed(method: Method, seed: int, jobs: int) -> tuple[Trace, OnLoan, Result]:
    (settings,) = read_settings([method.policy], method.words)
    shares = (method.elastic, method.any_gpu, method.mixed)
    trace = workload(seed, *shares, count=round(jobs * method.crowd))
    spec = cluster(seed, lends=method.lends)
    seen = OnLoan(spec)
    return trace, seen, replay(trace, spec, settings, watch=seen)


def _spread(outcomes: Iterable[ReplayOutcome]) -> dict[str, float]:
    """Mean, median and 95th percentile of the seconds in the queue and in all."""
    every, found = list(outcomes), {}
    for name, values in (
        ("queueing", [float(it.queue_s) for it in every]),
        ("JCT", [float(it.jct_s) for it in every]),
    ):
        found[f"{name} mean"] = fmean(values) if values else 0.0
        found[f"{name} median"] = percentile(values, 50) or 0.0
        found[f"{name} 95th"] = percentile(values, 95) or 0.0
    return found


def _busy_gpus(outcomes: Iterable[ReplayOutcome]) -> list[float]:
    """GPUs that jobs hold, the mean of each hour of the trace's days."""
    found = [0.0] * (DAYS * 24)
    for outcome in outcomes:
        for begin_s, end_s, gpus in outcome.spans:
            for hour in range(int(begin_s // HOUR_S), min(len(found), int(end_s // HOUR_S) + 1)):
                both_s = min(end_s, (hour + 1) * HOUR_S) - max(begin_s, hour * HOUR_S)
                found[hour] += gpus * both_s / HOUR_S
    return found


def _by_day(looks: Iterable[tuple[float, int, int]]) -> list[float]:
    """The busy share of lent GPUs, day by day, over the looks at which there were any."""
    days: list[list[float]] = [[] for _ in range(DAYS)]
    for at_s, busy, lent in looks:
        if lent and at_s < DAYS * DAY_S:
            days[int(at_s // DAY_S)].append(busy / lent)
    return [fmean(each) if each else 0.0 for each in days]
