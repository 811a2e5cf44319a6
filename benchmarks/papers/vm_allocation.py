"""Rented nodes: the default against our own path relinking and EDF, over load, and the time of a
decision.

    python -m benchmarks.papers.vm_allocation [--iterations 1000] [--nodes 10 20]
        [--no-scale] [--json]

Whole replays of the cases and seeds of `vm_cases`, decided at submits, completions and every hour.
Cost is that of nodes and of lateness. A figure is the mean over seeds and numbers of nodes of one
method's cost over the other's. Path relinking is the paper's (elite pool of 10, f-bar), EDF its
baseline. A decision is for 100 nodes and 450 jobs, in CPU time of this process. Goals: the default
costs at most 1.01, 0.85 and 0.60 of path relinking at loads 1.0, 1.5 and 2.0, and 0.40 of EDF at
2.0. A decision takes at most 5 ms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from statistics import mean, median

import numpy as np

from benchmarks.papers import vm_cases
from benchmarks.support.report import Report
from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.compared.first_principle import edf
from dlq_master.policy.priced.greedy.greedy import PATH_RELINKING, greedy, path_relinking
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.situation import PricedJob, Schedule, Situation, Solver
from dlq_simulator.priced.instance import RentingInstance, RentingJob
from dlq_simulator.priced.world import World

TABLE_2 = Catalogue(tuple(NodeType(*row) for row in vm_cases.TABLE_2))
OVER_RELINKING = {1.0: 1.01, 1.5: 0.85, 2.0: 0.60}
OVER_EDF = {2.0: 0.40}
_REPEATS = 20


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("--iterations", type=int, default=PATH_RELINKING.iterations)
    options.add_argument("--nodes", type=int, nargs="+", default=list(vm_cases.SEEDS))
    options.add_argument("--no-scale", action="store_true", help="leave the 100 nodes out")
    report = Report.begin("papers.vm_allocation", options)
    decisions(report)
    for load in vm_cases.LOADS:
        compare(report, load, report.options.nodes, report.options.iterations)
    if not report.options.no_scale:
        scale(report)
    report.end()


def decisions(report: Report) -> None:
    """One decision of the largest size."""
    points = [point(seed) for seed in vm_cases.POINT_SEEDS]
    for name, solver, most_ms, repeats in (
        ("default", marginal, 5.0, _REPEATS),
        ("greedy", greedy, None, 1),
        ("path relinking", path_relinking, None, 1),
    ):
        took_ms = [timed(solver, at, repeats) for at in points]
        report.figure(
            f"decision for 450 jobs on 100 nodes, {name}: CPU, median of {len(points)}",
            median(took_ms), "ms", at_most=most_ms, note=f"longest {max(took_ms):.2f} ms",
        )  # fmt: skip


def timed(solver: Solver, jobs: Iterable[PricedJob], repeats: int) -> float:
    """ms of CPU time, the median of some runs, from jobs to schedule."""
    found, now = list(jobs), 2.1e6
    took = []
    for _ in range(repeats):
        begun_s = time.process_time()
        at = Situation(now, tuple(found), TABLE_2, vm_cases.POINT_NODES)
        made: Schedule = solver(at, np.random.default_rng(0))
        took.append(1e3 * (time.process_time() - begun_s))
        assert made.grants
    return median(took)


def compare(report: Report, load: float, sizes: Iterable[int], iterations: int) -> None:
    """The default's cost over others', at one load."""
    rules = PATH_RELINKING._replace(iterations=iterations)

    def relinking(situation: Situation, draw: np.random.Generator) -> Schedule:
        return path_relinking(situation, draw, rules)

    over: dict[str, list[float]] = {"path relinking": [], "greedy": [], "EDF": []}
    for nodes in sizes:
        for seed in vm_cases.SEEDS[nodes]:
            jobs = instance(nodes, load, seed)
            default = World(jobs, marginal).run().total
            for name, solver in (("path relinking", relinking), ("greedy", greedy), ("EDF", edf)):
                over[name].append(default / World(jobs, solver).run().total)
    goals = {"path relinking": OVER_RELINKING.get(load), "EDF": OVER_EDF.get(load)}
    for name, ratios in over.items():
        report.figure(
            f"load {load}: cost of the default over that of {name}, mean of {len(ratios)}",
            mean(ratios), "x", at_most=goals.get(name), note=f"{min(ratios):.3f} to "
                                                             f"{max(ratios):.3f}",
        )  # fmt: skip


def scale(report: Report) -> None:
    """One replay of 1,000 jobs on 100 nodes."""
    jobs = instance(100, 2.0, vm_cases.SCALE_SEED)
    cost = {}
    for name, solver in (("default", marginal), ("greedy", greedy), ("EDF", edf)):
        begun_s = time.process_time()
        bill = World(jobs, solver).run()
        cost[name] = bill.total
        took_s = time.process_time() - begun_s
        report.figure(
            f"1,000 jobs on 100 nodes, load 2.0, {name}: CPU", took_s, "s",
            note=f"{bill.decisions} decisions, ${bill.total:,.0f}",
        )  # fmt: skip
    for name in ("greedy", "EDF"):
        ratio = cost["default"] / cost[name]
        report.figure(f"1,000 jobs on 100 nodes, load 2.0: default over {name}", ratio, "x")


def instance(nodes: int, load: float, seed: int) -> RentingInstance:
    """A case as the simulator takes it."""
    return RentingInstance(
        [
            RentingJob(f"j{n:04d}", job.submit_s, job.due_s, job.weight, table(job))
            for n, job in enumerate(vm_cases.case(nodes, load, seed))
        ],
        TABLE_2,
        nodes,
    )


def point(seed: int) -> list[PricedJob]:
    """The jobs of one decision."""
    return [
        PricedJob(n, job.due_s, job.weight, table(job))
        for n, job in enumerate(vm_cases.point(seed))
    ]


def table(job: vm_cases.Drawn) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Times by kind and GPUs."""
    return np.array([job.times_s[kind] for kind in TABLE_2.kinds])


if __name__ == "__main__":
    main()
