"""Stragglers found by `[straggler]` in simulated gangs of 8, and healthy gangs that are suspected.

    python -m benchmarks.profiler.stragglers [--gangs N] [--healthy N] [--steps N] [--noise X]

The master's code judges sums as agents report them, every 30 s of virtual time. Work times
differ by 5 % from step to step, and by 1 % between nodes. They drift by 1 % over some fifty steps.
One step in a hundred takes up to three times as long. A step takes 0.2 to 3 s.

- In each of N gangs one node works 10 % longer. It shall be told within 200 steps, and no other.
- Healthy gangs run for many steps. No node of them shall be told.
- In jobs with 10 % more work on one rank, that rank moves from node to node. It is told first,
  and no more once other nodes have had it.
- A sick node is told, and stays so, in three jobs of which each rank ran elsewhere too.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping
from math import exp, log
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from benchmarks.support.report import Report
from dlq_master.control.activity_config import StragglerConfig
from dlq_master.control.attempts import stragglers
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import ToldUse
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes import node_steps
from dlq_master.policy.stragglers import WorkTimes

RANKS, REPORT_S, SLOWER = 8, 30.0, 0.10
NOISE, DRIFT, NODES_DIFFER, SPIKES = 0.05, 0.01, 0.01, 0.01
GPU = SimpleNamespace(index=0, gpu_type="h100-80gb")


class StragglerNote(NamedTuple):
    kind: str
    node_id: str
    step: int


class Master:
    """The state that the master's code looks at, and its events."""

    def __init__(self, noise: float) -> None:
        self.now_s, self.noise = 0.0, noise
        self.step = 0
        self.notes: list[StragglerNote] = []
        self.reports, self.cpu_s = 0, 0.0
        self.state = SimpleNamespace(
            cluster=SimpleNamespace(attempts={}, jobs={}, nodes={}),
            attempts=SimpleNamespace(
                stragglers=stragglers.Stragglers(StragglerConfig().rule()),
            ),
        )

    def note(self, kind: str, /, *, node_id: str, **_: Any) -> None:
        """As a turn notes an event."""
        self.notes.append(StragglerNote(kind, node_id, self.step))

    def step_node(self, node_id: str, event: object) -> None:
        """As a turn lets a suspicion begin or end."""
        self.state.cluster.nodes[node_id].doubted = isinstance(event, node_steps.Doubted)

    def suspects(self) -> list[str]:
        """The nodes that are suspected now."""
        scores = self.state.attempts.stragglers.scores
        return [node for node, one in scores.items() if one.suspected]

    def job(self, job_id: JobId) -> Any:
        return self.state.cluster.jobs[job_id]

    def take(self, attempt: Any, rank: int, work: WorkTimes) -> None:
        """A report, with its CPU time."""
        node_id = attempt.ranks[rank].node_id
        use = ToldUse(attempt.key, 1, rank, REPORT_S, work=work)
        begin_s = time.thread_time()
        stragglers.take(cast("Turn", self), node_id, cast("Attempt", attempt), use)
        self.cpu_s += time.thread_time() - begin_s
        self.reports += 1

    def gang(self, number: int, family: str, nodes: list[str]) -> Any:
        """An attempt on these nodes."""
        key = AttemptKey(JobId(number), 1)
        cluster = self.state.cluster
        for node in nodes:  # one that has had a gang before keeps its suspicion
            cluster.nodes.setdefault(node, SimpleNamespace(gpus=(GPU,), doubted=False))
        cluster.jobs[key.job_id] = SimpleNamespace(family=family, job_id=key.job_id, user="ada")
        slot = SimpleNamespace(mask=1, core_indices=())
        ranks = [SimpleNamespace(node_id=NodeId(node), gone=False) for node in nodes]
        attempt = SimpleNamespace(key=key, ranks=ranks, slot_of=lambda _rank: slot)
        cluster.attempts[key] = attempt
        return attempt


def work_times(rng: random.Random, usual: float, noise: float) -> Iterator[float]:
    """The logarithms of the work times of one rank, step by step."""
    drift, keeps = 0.0, 0.98
    moves = DRIFT * noise * (1.0 - keeps**2) ** 0.5
    while True:
        drift = keeps * drift + rng.gauss(0.0, moves)
        spike = log(rng.uniform(1.5, 3.0)) if rng.random() < SPIKES else 0.0
        yield usual + drift + rng.gauss(0.0, NOISE * noise) + spike


def _usual(rng: random.Random, slower: float | None, noise: float) -> float:
    """How a node differs from its peers."""
    return rng.gauss(0.0, NODES_DIFFER * noise) if slower is None else log(1.0 + slower)


def run(
    master: Master, attempt: Any, rng: random.Random, steps: int, slow: Mapping[int, float]
) -> None:
    """A gang makes steps, and its agents report. `slow`: how much longer some ranks work."""
    step_s = exp(rng.uniform(log(0.2), log(3.0)))
    times = [
        work_times(rng, log(step_s) + _usual(rng, slow.get(rank), master.noise), master.noise)
        for rank in range(RANKS)
    ]
    each = max(1, min(round(REPORT_S / step_s), steps))
    for first in range(0, steps, each):
        count = min(each, steps - first)
        master.now_s += REPORT_S
        master.step = first + count
        for rank, told in enumerate(times):
            logs = [next(told) for _ in range(count)]
            master.take(
                attempt, rank, WorkTimes(count, sum(logs), sum(value * value for value in logs))
            )


def sick(report: Report, rng: random.Random, gangs: int, noise: float) -> None:
    """One node of each gang works 10 % longer."""
    found, wrong, master = [], 0, Master(noise)
    for number in range(gangs):
        nodes = [f"n{number}-{rank}" for rank in range(RANKS)]
        slow = rng.randrange(RANKS)
        master.notes.clear()
        run(master, master.gang(number, "", nodes), rng, 400, {slow: SLOWER})
        told = [one for one in master.notes if one.kind == "node_straggler"]
        wrong += any(one.node_id != nodes[slow] for one in told)
        found.append(next((one.step for one in told if one.node_id == nodes[slow]), 10**6))
    within = sum(step <= 200 for step in found)
    report.figure("gangs with a slow node", gangs, "gangs")
    report.figure("found within 200 steps", 100.0 * within / gangs, "%", at_least=99.0)
    report.figure("steps, half of them", sorted(found)[gangs // 2], "steps")
    report.figure("steps, 99 of 100", sorted(found)[int(0.99 * gangs)], "steps", at_most=200)
    report.figure("gangs with another node told", wrong, "gangs", at_most=0.005 * gangs)
    report.figure("a report, in the master", 1e6 * master.cpu_s / master.reports, "us")


def healthy(report: Report, rng: random.Random, gangs: int, steps: int, noise: float) -> None:
    """Nobody works longer."""
    master = Master(noise)
    for number in range(gangs):
        nodes = [f"n{number}-{rank}" for rank in range(RANKS)]
        run(master, master.gang(number, "", nodes), rng, steps, {})
    told = {one.node_id for one in master.notes}
    report.figure("healthy gangs", gangs, "gangs", note=f"{steps} steps each")
    report.figure("of their nodes, told", len(told), "nodes", at_most=0.001 * gangs * RANKS)


def skewed(report: Report, rng: random.Random, jobs: int, noise: float) -> None:
    """One rank of a job has more work, wherever it is. It runs on three sets of nodes."""
    left, first = 0, 0
    for number in range(jobs):
        master = Master(noise)
        for place in range(3):
            nodes = [f"n{(rank + 3 * place) % RANKS}" for rank in range(RANKS)]
            attempt = master.gang(3 * number + place, f"skewed-{number}", nodes)
            run(master, attempt, rng, 300, {0: SLOWER})
            if place == 0:
                first += bool(master.suspects())
        left += bool(master.suspects())
    report.figure("jobs with more work on a rank", jobs, "jobs")
    report.figure("with a node told at first", first, "jobs")
    report.figure("with a node told in the end", left, "jobs", at_most=0.02 * jobs)


def moving(report: Report, rng: random.Random, cases: int, noise: float) -> None:
    """A sick node, and three runs of a job, in each of which it has another rank."""
    kept = 0
    for number in range(cases):
        master, bad = Master(noise), f"n{rng.randrange(RANKS)}"
        for place in range(3):
            nodes = [f"n{(rank + 3 * place) % RANKS}" for rank in range(RANKS)]
            attempt = master.gang(3 * number + place, f"job-{number}", nodes)
            run(master, attempt, rng, 300, {nodes.index(bad): SLOWER})
        kept += master.suspects() == [bad]
    report.figure("sick nodes in three runs", cases, "nodes")
    report.figure("told in the end, and alone", 100.0 * kept / cases, "%", at_least=98.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gangs", type=int, default=1000)
    parser.add_argument("--healthy", type=int, default=500)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=1.0, help="so many times as much")
    parser.add_argument("--seed", type=int, default=25)
    report = Report.begin("profiler.stragglers", parser)
    given = report.options
    rng = random.Random(given.seed)
    sick(report, rng, given.gangs, given.noise)
    healthy(report, rng, given.healthy, given.steps, given.noise)
    skewed(report, rng, max(1, given.gangs // 5), given.noise)
    moving(report, rng, max(1, given.gangs // 5), given.noise)
    report.end()


if __name__ == "__main__":
    main()
