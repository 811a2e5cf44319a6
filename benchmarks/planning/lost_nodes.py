"""Gangs that lose a node: with kept GPUs (`keep_gpus_s`) against a plain requeue, on one trace.

    python -m benchmarks.planning.lost_nodes [--nodes N] [--jobs N] [--days N...] [--repair HOURS]
        [--load X] [--seeds N] [--json]

Jobs as in `planning.simulate` run under `dlq` on nodes of eight GPUs. Each node fails at random,
every `--days` days in the mean, and is back after `--repair` hours. Its jobs lose their work since
the last checkpoint, one in half an hour. Both runs of a seed have the same jobs and the same
failures. Lost GPU-hours are those in which a gang waits again after a failure, and those that are
kept idle for it. The interval is that of their difference, by 2,000 samples of the seeds.

Two rates by default. The first is Philly's, by Jeon et al. (USENIX ATC 2019). In 75 days there were
478 failures of the MPI runtime, which lost a peer or its daemon, and 10 ECC errors of GPUs. The log
has 423 nodes in the mean minute. So each node fails every 65 days: 15 failures in 1,000 node-days.
Kokolis et al. (HPCA 2025) have 6.5. The second rate is two days, and shows rare cases often.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

from benchmarks.planning.simulate import LOAD, philly_like
from benchmarks.support.report import Report
from dlq_master.model.attempts.attempt import AttemptState, RankPhase
from dlq_master.model.attempts.attempt_steps import NodeLost
from dlq_master.model.cluster import drive
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.resources import Allocation
from dlq_master.model.view import View
from dlq_master.policy.transit import kept_gpus
from dlq_simulator.metrics import mean, percentile
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import ReplaySettings, read_settings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, read_cluster
from dlq_simulator.world.course import Seconds

CHECKPOINT_S = 1800.0
DAY_S, HOUR_S = 86_400.0, 3600.0
PHILLY_FAILURES, PHILLY_DAYS, PHILLY_NODES = 478 + 10, 75, 423.46
PHILLY = round(PHILLY_NODES * PHILLY_DAYS / PHILLY_FAILURES)
OFTEN = 2.0
SAMPLES = 2_000
KEPT, PLAIN = "kept GPUs", "plain requeue"


class Told(NamedTuple):
    """One replay: gangs that lost a node, and GPU-hours."""

    losses: int
    waits_s: list[float]
    waited: float
    kept: float
    jct_s: float
    gang_jct_s: float

    @property
    def lost(self) -> float:
        return self.waited + self.kept


class FailingReplay(Replay):
    """A replay in which nodes fail and come back; `failures`: their instants and nodes, sorted."""

    def __init__(
        self,
        trace: Trace,
        spec: ClusterSpec,
        settings: ReplaySettings,
        failures: list[tuple[float, int]],
        repair_s: float,
    ) -> None:
        super().__init__(trace, spec, settings)
        self.repair_s = repair_s
        self.changes = [(at_s, True, number) for at_s, number in failures]
        self.lost: dict[JobId, float] = {}  # gangs that wait since a node failed
        self.waits: list[tuple[float, int]] = []  # seconds, and GPUs
        self.kept_gpu_s = 0.0
        self._kept = 0

    def _next_instant(self) -> Seconds:
        if self.changes and not self.agenda.heap:
            return self.changes[0][0]
        instant_s = super()._next_instant()
        return min(instant_s, self.changes[0][0]) if self.changes else instant_s

    def _turn(self, now_s: Seconds) -> None:
        self.kept_gpu_s += self._kept * (now_s - self._now_s)
        while self.changes and self.changes[0][0] <= now_s:
            _, fails, number = heappop(self.changes)
            self._change(sorted(self.cluster.nodes)[number], now_s, fails=fails)
            if fails:
                heappush(self.changes, (now_s + self.repair_s, False, number))
        super()._turn(now_s)
        keeping = self.cluster.keeping
        held = kept_gpus.claims(View(self.cluster, now_s)) if keeping else []
        self._kept = sum([claim.width for claim in held])

    def _change(self, node_id: NodeId, now_s: Seconds, *, fails: bool) -> None:
        node = self.cluster.nodes[node_id]
        state = NodeState.DOWN if fails else NodeState.UP
        self.cluster.put_node(node._replace(state=state))
        for key in self.cluster.attempts_on(node_id) if fails else ():
            if self.cluster.attempts[key].state is AttemptState.RUNNING:
                self._lose(key, node_id, now_s)

    def _lose(self, key: AttemptKey, node_id: NodeId, now_s: Seconds) -> None:
        """It goes back to its last checkpoint."""
        attempt, course = self.cluster.attempts[key], self.courses[key.job_id]
        again_s = min(max(0.0, now_s - course.progress_s) % CHECKPOINT_S, CHECKPOINT_S)
        course.stop(now_s)
        again_s = min(again_s, course.done_s)
        course.done_s -= again_s
        course.overhead_s += again_s
        course.leave(now_s)
        ranks = [
            rank._replace(phase=RankPhase.EXITED, lost=rank.node_id == node_id)
            for rank in attempt.ranks
        ]
        self.cluster.put_attempt(attempt._replace(ranks=tuple(ranks)))
        drive.step_attempt(self.cluster, key, NodeLost(), now_s)
        if len(attempt.lease.allocation.slots) > 1:
            self.lost[key.job_id] = now_s

    def _arrive(self, job_id: JobId) -> None:
        super()._arrive(job_id)
        job = self.cluster.jobs[job_id]  # never held: each failure is the node's
        self.cluster.put_job(job._replace(rules=job.rules._replace(max_infra_failures=1_000_000)))

    def _start(self, job_id: JobId, number: int, allocation: Allocation, now_s: Seconds) -> None:
        super()._start(job_id, number, allocation, now_s)
        since_s = self.lost.pop(job_id, None)
        if since_s is not None:
            self.waits.append((now_s - since_s, allocation.width))


def main() -> None:
    """Both ways on each seed, at each rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--days", type=float, nargs="+", default=[PHILLY, OFTEN])
    parser.add_argument("--repair", type=float, default=2.0)
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--seeds", type=int, default=3)
    report = Report.begin("planning.lost_nodes", parser)
    asked = report.options
    report.say(f"{asked.jobs} jobs, {asked.nodes} nodes of 8 GPUs, load {asked.load:g}")
    report.say(f"a node is back after {asked.repair:g} h; {asked.seeds} seeds")
    for days in asked.days:
        seeds = range(1, asked.seeds + 1)
        kept = [told(asked, seed, days, []) for seed in seeds]
        plain = [told(asked, seed, days, ["keep_gpus_s=off"]) for seed in seeds]
        where = f"{days:g} days{' (Philly)' if days == PHILLY else ''}"
        for name, runs in ((PLAIN, plain), (KEPT, kept)):
            _show(report, f"{where}, {name}", runs)
        saved = [one.lost - other.lost for one, other in zip(plain, kept, strict=True)]
        low, high = interval(saved)
        report.figure(
            f"{where}: lost GPU-hours that kept GPUs save, in each run", mean(saved) or 0.0, "h",
            note=f"95 %: {low:.1f} to {high:.1f}",
        )  # fmt: skip
    report.end()


def _show(report: Report, what: str, runs: list[Told]) -> None:
    waits = sorted(wait_s for run in runs for wait_s in run.waits_s)
    at_once = sum(wait_s <= 1.0 for wait_s in waits)
    for words, value, unit in (
        ("gangs that lost a node", sum(run.losses for run in runs), ""),
        ("mean wait until they run again", mean(waits) or 0.0, "s"),
        ("nine of ten wait at most", percentile(waits, 90) or 0.0, "s"),
        ("that run again at once", 100 * at_once / max(1, len(waits)), "%"),
        ("GPU-hours in which they wait", sum(run.waited for run in runs), "h"),
        ("GPU-hours kept idle", sum(run.kept for run in runs), "h"),
        ("mean time of all jobs", mean([run.jct_s for run in runs]) or 0.0, "s"),
        ("mean time of gangs", mean([run.gang_jct_s for run in runs]) or 0.0, "s"),
    ):
        report.figure(f"{what}: {words}", value, unit)


def interval(values: list[float]) -> tuple[float, float]:
    """Where the mean is in 95 of 100 samples with replacement."""
    draw = random.Random("interval")
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(SAMPLES))
    return means[SAMPLES // 40], means[-SAMPLES // 40 - 1]


def told(asked: argparse.Namespace, seed: int, days: float, words: list[str]) -> Told:
    """One replay of a seed, where each node fails every `days` days."""
    trace = philly_like(asked.jobs, asked.nodes * 8, seed)
    rows = [
        replace(row, submit_time_s=round(row.submit_time_s * LOAD / asked.load))
        for row in trace.jobs
    ]
    trace = Trace.of("philly-like", rows)
    (settings,) = read_settings(["dlq"], words, seed)
    failures = drawn(asked, days, 3 * rows[-1].submit_time_s, seed)
    spec = read_cluster(f"{asked.nodes}x8")
    run = FailingReplay(trace, spec, settings, failures, asked.repair * HOUR_S)
    run.run()
    outcomes = run.outcomes.values()
    every = [it.finish_s - it.job.submit_time_s for it in outcomes]
    gangs = [it.finish_s - it.job.submit_time_s for it in outcomes if it.job.num_gpus > 8]
    waited = sum(wait_s * gpus for wait_s, gpus in run.waits) / HOUR_S
    waits_s = [wait_s for wait_s, _ in run.waits]
    kept = run.kept_gpu_s / HOUR_S
    return Told(len(run.waits), waits_s, waited, kept, mean(every) or 0.0, mean(gangs) or 0.0)


def drawn(
    asked: argparse.Namespace, days: float, until_s: float, seed: int
) -> list[tuple[float, int]]:
    """Failures of all nodes, each a Poisson process."""
    draw, found = random.Random(f"failures {seed}"), []
    for number in range(asked.nodes):
        at_s = draw.expovariate(1 / (days * DAY_S))
        while at_s < until_s:
            found.append((at_s, number))
            at_s += asked.repair * HOUR_S + draw.expovariate(1 / (days * DAY_S))
    return sorted(found)


if __name__ == "__main__":
    main()
