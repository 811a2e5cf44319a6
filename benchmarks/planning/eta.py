"""The distance of the twin's forecast start from the real start, and the cost of a look.

    python -m benchmarks.planning.eta [--json]   (a generated Philly-like trace, 10,000 queued)
    python -m benchmarks.planning.eta --trace philly_jobs.csv.gz [--skip N] [--jobs N]
        [--cluster 60x8]

Every so often the state of a replay is frozen and simulated ahead, as a master does it, in the same
CPU time. Counted are waiting jobs that were submitted in the last quarter of an hour: the forecast
that their users see first. The twin knows the jobs that have ended by then (of a trace, also the
2,000 before). It knows no run time of a living job. A look at many queued jobs has the CPU time of
`[twin] cpu_seconds`; its reach ahead is a figure.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.planning.simulate import philly_like
from benchmarks.support.report import Report
from dlq_master.control.config import TwinConfig
from dlq_master.control.forecast.forecasts import PAST_KEPT, RECENT_KEPT
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.planner.answers import read_answer, read_forecast
from dlq_master.planner.forecasts import PastRuns, Range
from dlq_master.planner.questions import look, read_question, state_of
from dlq_simulator.metrics import percentile
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.twin.answering import Answering
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.course import Seconds

NEW_S = 900.0
CPU_S = TwinConfig().cpu_seconds
POLICIES = ("fifo", "best-effort", "tiresias-las", "dlq")


class Seen(NamedTuple):
    """The forecast of a job, and its time."""

    at_s: float
    range: Range


class Foreseen(Replay):
    """A replay whose twin looks ahead every so often."""

    every_s: float
    past: list[PastRuns]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first_starts: dict[JobId, Seconds] = {}
        self.seen: dict[JobId, Seen] = {}
        self.recent: list[Job] = []
        self.looks_s: list[float] = []
        self._next_s: float = self.begin_s

    def _arrive(self, job_id: JobId) -> None:
        super()._arrive(job_id)
        self.recent.append(self.cluster.jobs[job_id])

    def _start(self, job_id: JobId, number: int, allocation: Any, now_s: Seconds) -> None:
        self.first_starts.setdefault(job_id, now_s)
        super()._start(job_id, number, allocation, now_s)

    def _finish(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        row = self.courses[job_id].row
        self.past.append(PastRuns(row.user or "", row.job_id, float(row.duration_s)))
        super()._finish(job_id, number, now_s)

    def _turn(self, now_s: Seconds) -> None:
        super()._turn(now_s)
        if now_s >= self._next_s:
            self._next_s = now_s + self.every_s
            self._look(now_s)

    def _look(self, now_s: Seconds) -> None:
        new = [
            job.job_id
            for job in self.cluster.jobs.values()
            if job.waiting
            and job.job_id not in self.first_starts
            and job.job_id not in self.seen
            and job.submit_time_s >= now_s - NEW_S
        ]
        if not new:
            return
        state, past = state_of(self.cluster, self.policy, now_s), self.past[-PAST_KEPT:]
        question = look(1, state, past, self.recent[-RECENT_KEPT:], CPU_S)
        _, content = read_answer(Answering().answer(read_question(question)))
        forecast = read_forecast(content)
        self.looks_s.append(forecast.cpu_s)
        for job_id in new:
            if job_id in forecast.starts:
                self.seen[job_id] = Seen(now_s, forecast.starts[job_id])


def show(report: Report, name: str, run: Foreseen) -> None:
    """Figures over all forecasts."""
    pairs = [(seen, run.first_starts[job_id]) for job_id, seen in run.seen.items()]
    off = [abs(seen.range.likely_s - start_s) for seen, start_s in pairs]
    waits = [start_s - seen.at_s for seen, start_s in pairs]
    late = [start_s - seen.range.likely_s for seen, start_s in pairs]
    within = sum(seen.range.low_s <= start_s <= seen.range.high_s for seen, start_s in pairs)
    if not pairs:
        report.say(f"{name}: nobody who is new waits at any look")
        return
    report.figure(f"{name}, jobs foreseen", len(pairs), "jobs", note=f"in {len(run.looks_s)} looks")
    for share in (50, 90):
        figure = percentile(off, share) or 0.0
        wait_s = percentile(waits, share) or 0.0
        report.figure(f"{name}, error p{share}", figure, "s", note=f"of waits of {wait_s:,.0f} s")
    report.figure(f"{name}, later than said p50", percentile(late, 50) or 0.0, "s")
    report.figure(f"{name}, in their range", 100 * within / len(pairs), "%", at_least=70)
    report.figure(f"{name}, CPU of a look", percentile(run.looks_s, 50) or 0.0, "s")


def many(report: Report, jobs: int, policy: str) -> None:
    """One look at this number of queued jobs, on a full cluster, within its CPU time."""
    spec = read_cluster("120x8")
    trace = philly_like(jobs, spec.gpus, 1)
    at_once = Trace.of("at once", [replace(row, submit_time_s=0) for row in trace.jobs])
    (settings,) = read_settings([policy], [])
    run = Replay(at_once, spec, settings)
    run._turn(0)
    began_s = time.process_time()
    state = state_of(run.cluster, run.policy, 0.0)
    froze_s = time.process_time()
    past = [PastRuns("", row.job_id, float(row.duration_s)) for row in trace.jobs[:PAST_KEPT]]
    span_s = trace.jobs[-1].submit_time_s
    recent = [
        job._replace(submit_time_s=float(trace.jobs[job.job_id - 1].submit_time_s - span_s))
        for job in list(run.cluster.jobs.values())[-RECENT_KEPT:]
    ]
    question = look(1, state, past, recent, CPU_S)
    wrote_s = time.process_time()
    asked = read_question(question)
    _, content = read_answer(Answering().answer(asked))
    forecast = read_forecast(content)
    queued = run.cluster.waiting.count
    name = f"{policy}, {queued:,} queued"
    report.figure(f"{name}, on the loop", (froze_s - began_s) * 1e3, "ms", at_most=20)
    report.figure(f"{name}, in a thread", (wrote_s - froze_s) * 1e3, "ms")
    report.figure(f"{name}, bytes", len(question) / 2**20, "MiB")
    note = f"{forecast.worlds} worlds"
    report.figure(f"{name}, CPU of a look", forecast.cpu_s, "s", at_most=1.2 * CPU_S, note=note)
    report.figure(f"{name}, jobs with a range", len(forecast.starts), "jobs")
    ahead_h = min(forecast.complete_to_s, 7 * 86_400.0) / 3600
    report.figure(f"{name}, looked ahead", ahead_h, "h")


def main() -> None:
    """Replay and look, under each policy; then look at many."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trace", metavar="FILE", help="a trace file, not the generated load")
    parser.add_argument("--skip", type=int, default=0, help="number of its jobs")
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--cluster", default="15x8", metavar="NxG")
    parser.add_argument("--policy", action="append", metavar="NAME")
    parser.add_argument("--every", type=float, default=1_800.0, metavar="SECONDS")
    parser.add_argument("--queued", type=int, default=10_000, help="jobs of the last look; 0: none")
    report = Report.begin("planning.eta", parser)
    chosen = report.options
    spec = read_cluster(chosen.cluster)
    before: list[PastRuns] = []
    trace = philly_like(chosen.jobs, spec.gpus, 1)
    if chosen.trace:
        every = read_trace(chosen.trace).jobs
        rows = every[chosen.skip : chosen.skip + chosen.jobs]
        began_s = rows[0].submit_time_s
        before = [
            PastRuns(row.vc or "", row.job_id, float(row.duration_s))
            for row in every[max(0, chosen.skip - PAST_KEPT) : chosen.skip]
            if row.submit_time_s + row.duration_s < began_s
        ]
        fit = [replace(row, user=row.vc) for row in rows if row.num_gpus <= spec.gpus]
        trace = Trace.of(chosen.trace, fit)
    report.say(f"{len(trace.jobs):,} jobs of {trace.path} on {chosen.cluster}")
    for policy in chosen.policy or POLICIES:
        (settings,) = read_settings([policy], [])
        run = Foreseen(trace, spec, settings)
        run.every_s, run.past = chosen.every, list(before)
        run.run()
        show(report, policy, run)
    for policy in chosen.policy or POLICIES:
        if chosen.queued:
            many(report, chosen.queued, policy)
    report.end()


if __name__ == "__main__":
    main()
